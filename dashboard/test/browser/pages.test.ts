import { join } from "node:path";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import type { CostAnswer, InstanceDetail, SearchResult, SeriesAnswer, TopList } from "../../src/api/types";
import { format } from "../../src/format/decimal";
import { accessible, drawn, launch, open, settled, shot } from "./browser";
import { evilName, freePort, json, Serve } from "./cloud";

const why = inject("why");

describe.skipIf(why !== "")("the dashboard on a simulated cloud", () => {
  let browser: Browser;
  let serve: Serve;
  let instance: string;
  let month: string;
  const api = <T>(path: string) => json<T>(`${serve.url}/api/v1${path}`);

  beforeAll(async () => {
    serve = new Serve(join(inject("data"), "cloud"), await freePort());
    await serve.start();
    browser = await launch();
    const top = await api<TopList>("/top?by=price&limit=1");
    instance = top.items[0]!.instance.id;
    // In the first hours of a month the bills of the cloud lie in the month before.
    month = top.begin.slice(0, 7);
  });
  afterAll(async () => {
    await browser?.close();
    await serve?.stop();
  });

  it("Instance: charts are drawn, each range reads its tier, costs stand beside them", async () => {
    const { page, errors } = await open(browser);
    for (const [range, name, tier] of [
      ["24h", "24 h", "5-minute tier"],
      ["7d", "7 d", "hourly tier"],
      ["12h", "12 h", "5-minute tier"],
      ["6h", "6 h", "raw samples"],
    ] as const) {
      if (range === "24h") await page.goto(`${serve.url}/instances/${instance}?range=24h`);
      else await page.getByRole("group", { name: "Range" }).getByRole("button", { name, exact: true }).click();
      await settled(page);
      await page.waitForFunction((t) => [...document.querySelectorAll(".panel header .quiet")].some((e) => e.textContent?.includes(t)), tier);
      expect(new URL(page.url()).searchParams.get("range") ?? "6h").toBe(range);
      const charts = await drawn(page);
      const answer = await api<SeriesAnswer>(`/instances/${instance}/series?range=${range}`);
      expect(charts.map((c) => c.label.split(":")[0])).toEqual(["CPU", "Memory", "Network", "Disk throughput", "Disk requests"]);
      for (const c of charts) {
        expect(c.inked, `${range} ${c.label}`).toBeGreaterThan(1000);
        expect(c.colours, `${range} ${c.label}`).toBeGreaterThan(0);
        expect(c.points, `${range} ${c.label}`).toBeGreaterThan(2);
      }
      expect(charts[0]!.points).toBeGreaterThanOrEqual(answer.panels[0]!.times.length - 1);
      if (range !== "12h") await shot(page, `instance-${range}`);
    }
    await page.goto(`${serve.url}/instances/${instance}?range=24h`);
    await settled(page);
    const detail = await api<InstanceDetail>(`/instances/${instance}`);
    await expect(page.locator("h1").textContent()).resolves.toBe(detail.instance.name);
    const costs = await api<{ totals: { amount: string; currency: string }[] }>(`/instances/${instance}/costs?range=24h`);
    const total = await page.locator(".panel[aria-label=Costs] p.value").textContent();
    expect(total).toBe(format(costs.totals[0]!.amount).text + costs.totals[0]!.currency);
    await accessible(page, "instance");
    expect(errors).toEqual([]);
  });

  it("Node: the traffic of all instances, and which those are", async () => {
    const { page, errors } = await open(browser);
    await page.goto(`${serve.url}/nodes`);
    await settled(page);
    await shot(page, "nodes");
    await page.locator("tbody a").first().click();
    await settled(page);
    await page.getByRole("button", { name: "24 h" }).click();
    await settled(page);
    await page.waitForFunction(() => document.querySelectorAll(".chart canvas").length === 3);
    for (const c of await drawn(page)) expect([c.label, c.colours > 0, c.points > 100]).toEqual([c.label, true, true]);
    expect(await page.locator("section[aria-label=Instances] tbody tr").count()).toBeGreaterThan(5);
    await shot(page, "node");
    await accessible(page, "node");
    expect(errors).toEqual([]);
  });

  it("Top usage: ten by each measure, and by exact price", async () => {
    const { page, errors } = await open(browser);
    await page.goto(`${serve.url}/top`);
    for (const by of ["CPU", "Memory", "Network", "Disk", "Price"]) {
      await page.getByRole("button", { name: by, exact: true }).click();
      await settled(page);
      await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 10);
    }
    expect(new URL(page.url()).searchParams.get("by")).toBe("price");
    const top = await api<TopList>("/top?by=price");
    const first = page.locator("tbody tr").first();
    expect(await first.locator("th a").textContent()).toBe(top.items[0]!.instance.name);
    expect(await first.locator(".dec").innerText()).toContain(format(top.items[0]!.price!).text);
    await shot(page, "top-price");
    await accessible(page, "top");
    expect(errors).toEqual([]);
  });

  it("Costs: exact totals, down to a line and how it came about", async () => {
    const { page, errors } = await open(browser);
    await page.goto(`${serve.url}/costs?month=${month}`);
    await settled(page);
    const costs = await api<CostAnswer>(`/costs?month=${month}&group=project`);
    expect(await page.locator(".tile dd.value").first().textContent()).toBe(format(costs.totals[0]!.price).text + costs.totals[0]!.currency);
    expect(await page.locator("section[aria-label='By project'] tbody tr").count()).toBe(costs.rows.length);
    for (const r of costs.rows) expect(await page.locator("section[aria-label='By project'] tbody tr", { hasText: r.project_name || r.project! }).innerText()).toContain(format(r.price).text);
    await shot(page, "costs");
    await accessible(page, "costs");
    await page.getByRole("button", { name: "Months" }).click();
    await settled(page);
    expect(await page.locator("section[aria-label='By month'] tbody tr").count()).toBeGreaterThan(0);
    await page.getByRole("button", { name: "Day", exact: true }).click();
    await settled(page);
    expect(await page.locator("section[aria-label='By day'] tbody tr").count()).toBeGreaterThan(0);
    await page.getByRole("button", { name: "Project", exact: true }).click();
    await settled(page);
    await page.locator("section[aria-label='By project'] tbody a").first().click();
    await settled(page);
    await page.locator("section[aria-label='By metric'] tbody a", { hasText: "memory" }).waitFor();
    await shot(page, "costs-project");
    await page.locator("section[aria-label='By metric'] tbody a", { hasText: "memory" }).click();
    await settled(page);
    expect(await page.locator("tbody tr").count()).toBe(100);
    await page.getByRole("button", { name: "Show more" }).click();
    await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 200);
    await shot(page, "lines");
    await accessible(page, "lines");
    const price = await page.locator("tbody tr").first().locator("td.num .dec").nth(1).innerText();
    await page.locator("tbody a").first().click();
    await settled(page);
    await page.getByRole("heading", { name: "How this price came about" }).waitFor();
    expect((await page.locator(".tile", { hasText: "Price" }).first().innerText()).replaceAll(/\s/g, "")).toContain(price.replaceAll(/\s/g, ""));
    expect(await page.locator("section[aria-label=Calculation] li").count()).toBeGreaterThan(0);
    expect(await page.locator("section[aria-label=Samples] tbody tr, section[aria-label='Tier rows'] tbody tr").count()).toBeGreaterThan(0);
    await shot(page, "explain");
    await accessible(page, "explain");
    expect(errors).toEqual([]);
  });

  it("Costs: CSV and Parquet are saved as files", async () => {
    const { page } = await open(browser);
    await page.goto(`${serve.url}/costs?month=${month}&project=project-0001`);
    await settled(page);
    for (const [name, begins] of [
      ["CSV", ""],
      ["Parquet", "PAR1"],
    ] as const) {
      const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name, exact: true }).click()]);
      const chunks: Buffer[] = [];
      for await (const c of await file.createReadStream()) chunks.push(c as Buffer);
      const body = Buffer.concat(chunks);
      if (begins) expect(body.subarray(0, 4).toString()).toBe(begins);
      else {
        const lines = (await api<CostAnswer>(`/costs?month=${month}&project=project-0001&group=`)).totals[0]!.lines;
        expect(body.toString().trimEnd().split("\n").length).toBe(lines + 1);
      }
    }
  });

  it("Rating: every list opens, with its state", async () => {
    const { page, errors } = await open(browser);
    await page.goto(`${serve.url}/rating`);
    await settled(page);
    expect(await page.locator("section[aria-label=Scopes] tbody tr").count()).toBe(4);
    await shot(page, "rating");
    await accessible(page, "rating");
    for (const [tab, sees] of [
      ["Runs", "done"],
      ["Late usage", "No late usage"],
      ["Unpriced", "Everything has a price"],
      ["Reprocessing", "No request"],
      ["Exports", "Nothing exported"],
      ["Months", "open"],
    ] as const) {
      await page.getByRole("navigation", { name: "Parts of rating" }).getByRole("link", { name: tab }).click();
      await page.locator("main .panel").getByText(sees, { exact: true }).first().waitFor();
      await settled(page);
      await shot(page, `rating-${tab.toLowerCase().replace(" ", "-")}`);
      await accessible(page, tab);
    }
    expect(errors).toEqual([]);
  });

  it("Plan: rules, what changed, and a quote to the last digit", async () => {
    const { page, errors } = await open(browser);
    await page.goto(`${serve.url}/plan/2`);
    await settled(page);
    expect(await page.locator("section[aria-label=memory] tbody").innerText()).toContain("0.0016");
    await shot(page, "plan");
    await accessible(page, "plan");
    await page.getByRole("link", { name: "What changed" }).click();
    await settled(page);
    expect(await page.locator(".change").allInnerTexts()).toContainEqual(expect.stringMatching(/changed\s+service memory, mapping: .*0\.0015.*0\.0016/));
    await shot(page, "plan-changes");
    await page.getByRole("link", { name: "Quote" }).click();
    await settled(page);
    await page.getByLabel("Metric").selectOption("disk.capacity");
    await page.getByLabel("Quantity").fill("10.000000000000000001");
    await page.getByRole("button", { name: "Quote" }).click();
    await page.locator("tfoot").waitFor();
    // 10.000000000000000001 × 0.0000958904109589, rounded half-even to 18 digits: no float gets there.
    expect(await page.locator("tfoot .dec").innerText()).toMatch(/^0\.000958904109589\s*EUR$/);
    await shot(page, "quote");
    await accessible(page, "quote");
    expect(errors).toEqual([]);
  });

  it("a quote that comes late is not shown beside another question", async () => {
    const { page, errors } = await open(browser);
    await page.goto(`${serve.url}/plan/current/quote`);
    await settled(page);
    let release = () => undefined as void;
    const held = new Promise<void>((resolve) => (release = resolve));
    await page.route("**/api/v1/quote", async (route) => {
      await held;
      await route.continue();
    });
    await page.getByRole("button", { name: "Quote" }).click();
    await page.locator("form").getByLabel("For").selectOption("project-0002");
    const answered = page.waitForResponse("**/api/v1/quote");
    release();
    await (await answered).finished();
    await page.waitForTimeout(300);
    expect(await page.locator("tfoot").count()).toBe(0);
    await page.getByRole("button", { name: "Quote" }).click();
    await page.locator("tfoot").waitFor();
    expect(await page.locator("section[aria-label=Quote] header").innerText()).toMatch(/for project-0002, by plan version \d/);
    expect(errors).toEqual([]);
  });

  it("search finds instances, projects and hosts, by keyboard; ranges stay", async () => {
    const { page, errors } = await open(browser);
    await page.goto(`${serve.url}/instances/${instance}?range=24h`);
    await settled(page);
    await page.keyboard.press("/");
    await page.keyboard.type("compute-003");
    await page.getByRole("option", { name: /compute-003/ }).waitFor();
    await shot(page, "search");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "compute-003" }).waitFor();
    expect(page.url()).toContain("range=24h");
    await page.keyboard.press("/");
    await page.keyboard.type("project-0002");
    await page.getByRole("option", { name: /project-0002/ }).first().waitFor();
    await page.locator("[role=option]", { hasText: "project-0002" }).last().click();
    await page.waitForURL(/project=project-0002/);
    const name = (await api<SearchResult>(`/search?q=${instance.slice(0, 13)}`)).instances[0]!.name;
    await page.keyboard.press("/");
    await page.keyboard.type(instance.slice(0, 13));
    await page.getByRole("option", { name: new RegExp(name) }).waitFor();
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name }).waitFor();
    expect(errors).toEqual([]);
  });

  it("a deep link opens the same window, and times say their zone", async () => {
    const { page } = await open(browser);
    await page.goto(`${serve.url}/instances/${instance}?range=12h`);
    await settled(page);
    await page.getByRole("button", { name: "Link to this window" }).click();
    await page.waitForURL(/end=/);
    const link = page.url();
    const end = new URL(link).searchParams.get("end")!;
    const { page: other } = await open(browser);
    await other.goto(link);
    await settled(other);
    const shown = `${end.slice(0, 10)} ${end.slice(11, 16)}`;
    await other.getByText(`Ends ${shown} UTC`).waitFor();
    expect(await other.locator(".foot").innerText()).toContain("Times in UTC");
    await other.getByRole("button", { name: "Local" }).click();
    await other.waitForFunction(() => document.querySelector(".foot")?.textContent?.includes("Times in Asia/"));
    const local = new Date(Date.parse(end) + 5.5 * 3600_000).toISOString();
    await other.getByText(`Ends ${local.slice(0, 10)} ${local.slice(11, 16)}`).waitFor();
    await shot(other, "instance-local");
  });

  it("a name with markup stays text everywhere", async () => {
    const { page, errors } = await open(browser);
    const found = await api<SearchResult>(`/search?q=${encodeURIComponent("<img")}`);
    expect(found.instances.map((x) => x.name)).toEqual([evilName]);
    await page.goto(`${serve.url}/instances/${found.instances[0]!.id}?range=24h`);
    await settled(page);
    expect(await page.locator("h1").textContent()).toBe(evilName);
    await page.keyboard.press("/");
    await page.keyboard.type("<img");
    await page.getByRole("option").first().waitFor();
    expect(await page.getByRole("option").first().innerText()).toContain(evilName);
    await shot(page, "markup");
    expect(await page.evaluate(() => [(window as { pwned?: number }).pwned, document.querySelectorAll("img[src=x]").length])).toEqual([undefined, 0]);
    expect(await page.title()).toContain(evilName);
    expect(errors).toEqual([]);
  });

  it("a chart answers the keyboard, and its figures are a table", async () => {
    const { page } = await open(browser);
    await page.goto(`${serve.url}/instances/${instance}?range=24h`);
    await settled(page);
    const chart = page.getByRole("img", { name: /^CPU/ });
    await chart.focus();
    await page.keyboard.press("Home");
    await page.keyboard.press("ArrowRight");
    const panel = page.locator("section[aria-label=CPU]");
    await panel.getByRole("columnheader", { name: "Here" }).waitFor();
    expect(await panel.locator("[aria-live]").textContent()).toMatch(/^\d{4}-\d\d-\d\d \d\d:\d\d: Highest [\d.]+ %, Average [\d.]+ %$/);
    await panel.getByRole("button", { name: "Highest" }).click();
    expect(await panel.getByRole("button", { name: "Highest" }).getAttribute("aria-pressed")).toBe("false");
  });

  it("dark, and on a phone: readable, nothing wider than the screen", async () => {
    const { page, errors } = await open(browser, { colorScheme: "dark", viewport: { width: 390, height: 844 } });
    for (const [name, path] of [
      ["instance", `/instances/${instance}?range=24h`],
      ["costs", `/costs?month=${month}`],
      ["top", "/top?by=price"],
      ["nodes", "/nodes"],
      ["rating", "/rating"],
      ["plan", "/plan"],
      ["lines", `/costs/lines?month=${month}&project=project-0001&metric=memory`],
    ] as const) {
      await page.goto(serve.url + path);
      await settled(page);
      await page.evaluate(() => new Promise((f) => requestAnimationFrame(f)));
      await shot(page, `phone-${name}`);
      expect(await page.evaluate(() => document.documentElement.scrollWidth), name).toBeLessThanOrEqual(390);
      await accessible(page, `phone, dark, ${name}`);
    }
    const { page: wide } = await open(browser, { colorScheme: "dark" });
    await wide.goto(`${serve.url}/instances/${instance}?range=24h`);
    await settled(wide);
    await shot(wide, "instance-dark");
    await accessible(wide, "instance, dark");
    expect(errors).toEqual([]);
  });

  it("the first page is small and there at once", async () => {
    let bytes = 0;
    let interactive = Infinity;
    // The best of three: a machine that builds or tests besides is no slow page.
    for (let i = 0; i < 3; i++) {
      const { page } = await open(browser);
      const client = await page.context().newCDPSession(page);
      await client.send("Network.enable");
      bytes = 0;
      client.on("Network.loadingFinished", (e) => (bytes += e.encodedDataLength));
      const t = Date.now();
      await page.goto(`${serve.url}/costs?month=${month}`);
      await page.getByRole("combobox").first().waitFor();
      interactive = Math.min(interactive, Date.now() - t);
      await settled(page);
      await page.context().close();
    }
    console.log(`first page: ${(bytes / 1024).toFixed(0)} kB over the wire with its figures, usable after ${interactive} ms`);
    expect(bytes).toBeLessThan(300 * 1024);
    expect(interactive).toBeLessThan(1500);
  });
});
