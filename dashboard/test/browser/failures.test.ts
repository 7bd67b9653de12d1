import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import type { SearchResult, TopList } from "../../src/api/types";
import { accessible, launch, open, settled, shot } from "./browser";
import { freePort, json, ratebatch, Serve } from "./cloud";

const why = inject("why");

describe.skipIf(why !== "")("when not all is well", () => {
  let browser: Browser;
  let cloud: string;
  beforeAll(async () => {
    cloud = join(inject("data"), "cloud");
    browser = await launch();
  });
  afterAll(async () => browser?.close());

  it("an empty database says so on every page, and what to do", async () => {
    const data = join(inject("data"), `empty-${process.pid}`);
    await ratebatch(data, "migrate");
    const serve = new Serve(data, await freePort());
    await serve.start();
    try {
      const { page, errors } = await open(browser);
      for (const [path, says] of [
        ["/costs", "Nothing is rated"],
        ["/instances", "No usage yet"],
        ["/nodes", "No host yet"],
        ["/top", "Nothing in the last 24 hours"],
        ["/rating", "Nothing is rated yet"],
        ["/plan", "No rate plan is applied"],
      ] as const) {
        await page.goto(serve.url + path);
        await settled(page);
        await page.locator("main .state strong", { hasText: says }).first().waitFor({ timeout: 10_000 });
        expect(await page.locator("main [role=alert]").count(), path).toBe(0);
        await page.locator(".banner").waitFor();
        await shot(page, `empty-${path.slice(1)}`);
        await accessible(page, `empty ${path}`);
      }
      await page.goto(`${serve.url}/instances/00000000-0000-4000-8000-000000000000`);
      await page.getByText("No instance with this id is known").waitFor();
      await page.goto(`${serve.url}/no/such/page`);
      await page.getByText("There is no such page").waitFor();
      expect(errors).toEqual([]);
    } finally {
      await serve.stop();
    }
  });

  it("a server that is gone is said to be, and is found again when it is back", async () => {
    const serve = new Serve(cloud, await freePort());
    await serve.start();
    const { page } = await open(browser);
    try {
      await page.goto(`${serve.url}/top`);
      await settled(page);
      expect(await page.locator("tbody tr").count()).toBe(10);
      await serve.stop();
      await page.getByRole("button", { name: "Memory", exact: true }).click();
      await page.getByText("The server does not answer since").waitFor();
      await page.getByText("The server does not answer.", { exact: true }).waitFor();
      await shot(page, "server-gone");
      await accessible(page, "server gone");
      await serve.start();
      await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 10 && !document.querySelector(".banner.bad"), undefined, { timeout: 30_000 });
    } finally {
      await serve.stop();
    }
  });

  it("an answer that fails once is asked for again; figures of before say that they are", async () => {
    const serve = new Serve(cloud, await freePort());
    await serve.start();
    const { page } = await open(browser);
    try {
      let status = 502; // nginx's, before a serve that starts again
      await page.route("**/api/v1/top?*", (route) => (status === 0 ? route.continue() : route.fulfill({ status, contentType: "text/html", body: "<h1>no</h1>" })));
      await page.clock.install();
      await page.goto(`${serve.url}/top`);
      await page.getByText("The server answered 502.").waitFor();
      status = 0;
      await page.clock.runFor(5_000);
      await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 10);
      status = 503;
      await page.clock.runFor(61_000);
      await page.getByText("The server answered 503: these are the figures from before.").waitFor();
      expect(await page.locator("tbody tr").count()).toBe(10);
      await accessible(page, "figures from before");
      status = 500;
      await page.clock.runFor(5_000);
      await page.getByText("The server answered 500.").waitFor();
      expect(await page.locator("tbody tr").count()).toBe(0);
      status = 0;
      await page.clock.runFor(31_000);
      await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 10 && !document.querySelector("main .alert"));
    } finally {
      await serve.stop();
    }
  });

  describe("with tokens", () => {
    let serve: Serve;
    let all: string;
    let one: string;
    beforeAll(async () => {
      const make = async (...args: string[]) => JSON.parse(await ratebatch(cloud, "serve", "token", "--output", "json", ...args)) as { token: string; line: string };
      const a = await make("--name", "everybody");
      const b = await make("--name", "shop", "--project", "project-0001");
      const file = join(inject("data"), `tokens-${process.pid}`);
      writeFileSync(file, `${a.line}\n${b.line}\n`, { mode: 0o600 });
      all = a.token;
      one = b.token;
      serve = new Serve(cloud, await freePort(), ["--tokens", file]);
      await serve.start();
    });
    afterAll(async () => serve?.stop());

    async function signIn(token: string, path: string) {
      const { page, errors } = await open(browser);
      await page.goto(serve.url + path);
      await page.getByRole("heading", { name: "Sign in" }).waitFor();
      await page.getByLabel("Token").fill(token);
      await page.getByRole("button", { name: "Sign in" }).click();
      return { page, errors };
    }

    it("without one the page asks for it and shows no figure; a wrong one is refused", async () => {
      const { page } = await signIn("not-a-token", "/costs");
      await page.getByText("The server does not know this token.").waitFor();
      expect(await page.locator("main table, main .dec").count()).toBe(0);
      await shot(page, "sign-in");
      await accessible(page, "sign in");
    });

    it("the right one opens the page that was asked for, and signing out forgets it", async () => {
      const { page } = await signIn(all, "/top?by=memory");
      await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 10);
      expect(page.url()).toContain("by=memory");
      await page.getByRole("button", { name: /Sign out/ }).click();
      await page.getByRole("heading", { name: "Sign in" }).waitFor();
    });

    it("a project's token sees nothing of another project's, on no page", async () => {
      const other = (await json<SearchResult>(`${serve.url}/api/v1/search?q=vm-&limit=50`, all)).instances.find((x) => x.project_id === "project-0002")!;
      const mine = (await json<TopList>(`${serve.url}/api/v1/top?by=cpu`, one)).items[0]!.instance;
      const { page, errors } = await signIn(one, "/costs");
      await page.getByText("This token sees project project-0001 only").waitFor();
      for (const path of ["/costs", "/costs?project=project-0002", "/costs/lines", "/instances", "/nodes", "/top", "/top?by=price", "/rating", "/rating/late", "/rating/unpriced", "/rating/schedules", "/rating/months", "/plan", "/plan/current/quote", `/instances/${mine.id}?range=24h`]) {
        await page.goto(serve.url + path);
        await settled(page);
        const text = await page.locator("main").innerText();
        for (const stranger of ["project-0002", "project-0003", "project-0004"]) {
          // What the address itself asks for may be named; nothing else.
          if (!path.includes(stranger)) expect(text, path).not.toContain(stranger);
        }
        expect(await page.getByRole("link", { name: "Runs" }).count(), path).toBe(0);
      }
      await page.goto(`${serve.url}/costs?project=project-0002`);
      await settled(page);
      expect(await page.locator("main .dec").count()).toBe(0);
      await page.goto(`${serve.url}/instances/${other.id}?range=24h`);
      await page.getByText("No instance with this id is known").waitFor();
      expect(await page.locator("main").innerText()).not.toContain(other.name);
      await shot(page, "project-token");
      await page.keyboard.press("/");
      await page.keyboard.type(other.name);
      await page.getByText(`Nothing is called \u201c${other.name}\u201d`).waitFor();
      expect(errors).toEqual([]);
    });
  });
});
