import { join } from "node:path";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import type { LineList, TopList } from "../../src/api/types";
import { accessible, launch, open, settled, shot } from "./browser";
import { freePort, json, Serve } from "./cloud";

const why = inject("why");

/*
 * What holds for each page, whatever it shows: axe finds nothing serious, a
 * phone's screen holds it, the keyboard reaches all of it. A page that is added
 * to the application belongs into this list.
 */
describe.skipIf(why !== "")("every page", () => {
  let browser: Browser;
  let serve: Serve;
  let pages: (readonly [name: string, path: string])[];

  beforeAll(async () => {
    serve = new Serve(join(inject("data"), "bills"), await freePort());
    await serve.start();
    browser = await launch();
    const at = "end=2026-10-01T03:00:00Z";
    const top = await json<TopList>(`${serve.url}/api/v1/top?by=cpu&limit=1&${at}`);
    const line = (await json<LineList>(`${serve.url}/api/v1/lines?month=2026-10&bucket=lines&limit=1`)).lines[0]!;
    pages = [
      ["costs", "/costs?month=2026-10"],
      ["costs by metric", "/costs?month=2026-10&group=metric&compare=to_date"],
      ["costs by day", "/costs?month=2026-10&group=day"],
      ["costs by month", "/costs?month=2026-10&group=month"],
      ["costs of a project", "/costs?month=2026-10&project=project-0001"],
      ["lines", "/costs/lines?month=2026-10&project=project-0001"],
      ["explain", `/costs/lines/${line.line_id}?project=${line.project}&begin=${line.begin}`],
      ["instances", "/instances"],
      ["instance", `/instances/${top.items[0]!.instance.id}?range=24h&${at}`],
      ["nodes", "/nodes"],
      ["node", `/nodes?region=RegionOne&host=compute-001&range=24h&${at}`],
      ["top", "/top?by=price"],
      ...["scopes", "runs", "late", "unpriced?month=2026-10", "schedules", "exports", "months"].map((tab) => [`rating ${tab.split("?")[0]}`, `/rating/${tab}`] as const),
      ["plan", "/plan"],
      ["plan changes", "/plan/1/changes"],
      ["quote", "/plan/current/quote"],
      ["no such page", "/no/such.page"],
    ];
  });
  afterAll(async () => {
    await browser?.close();
    await serve?.stop();
  });

  // A machine that builds and tests besides takes its time for forty pages.
  const patience = 300_000;

  it("a phone, in the dark, shows all of it: nothing is wider than the screen, what is to be pressed is large enough", { timeout: patience }, async () => {
    const { page, errors } = await open(browser, { colorScheme: "dark", viewport: { width: 390, height: 844 }, hasTouch: true });
    for (const [name, path] of pages) {
      await page.goto(serve.url + path);
      await settled(page);
      await page.waitForFunction(() => document.documentElement.scrollWidth <= 390, undefined, { timeout: 5000 }).catch(() => {});
      expect(await page.evaluate(() => document.documentElement.scrollWidth), name).toBeLessThanOrEqual(390);
      // WCAG 2.2's least size of a target; links inside sentences and tables are not counted.
      const small = await page.evaluate(() =>
        [...document.querySelectorAll<HTMLElement>("button, select, input, .nav a")]
          .filter((e) => e.offsetParent !== null && !e.closest(".sr, .skip"))
          .map((e) => [e.getAttribute("aria-label") ?? e.textContent ?? "", Math.round(e.getBoundingClientRect().height)] as const)
          .filter(([, height]) => height < 24),
      );
      expect(small, name).toEqual([]);
      await accessible(page, `${name}, phone, dark`);
    }
    await shot(page, "phone-none");
    expect(errors).toEqual([]);
  });

  /** walk presses Tab through the page and says what it reached, and what of that did not show that it has the focus. */
  async function walk(page: Page) {
    await page.evaluate(() => {
      (document.activeElement as HTMLElement | null)?.blur();
      window.scrollTo(0, 0);
    });
    const reached = new Set<string>();
    const unseen: string[] = [];
    let last = "";
    for (let i = 0; i < 400; i++) {
      await page.keyboard.press("Tab");
      const at = await page.evaluate(() => {
        const e = document.activeElement as HTMLElement | null;
        if (!e || e === document.body) return null;
        const all = [...document.querySelectorAll("*")];
        const s = getComputedStyle(e);
        // The browser itself marks the part of a month field that has the focus.
        const ring = (e as HTMLInputElement).type === "month" || (s.outlineStyle !== "none" && parseFloat(s.outlineWidth) > 0) || s.boxShadow !== "none";
        return { key: String(all.indexOf(e)), ring, what: `${e.tagName} ${e.getAttribute("aria-label") ?? e.textContent?.slice(0, 40)}` };
      });
      // A month field has several stops inside; what comes again later is the way round.
      if (!at || (reached.has(at.key) && at.key !== last)) break;
      last = at.key;
      reached.add(at.key);
      if (!at.ring) unseen.push(at.what);
    }
    const missed = await page.evaluate((keys) => {
      const all = [...document.querySelectorAll("*")];
      return all
        .map((e, i) => [e as HTMLElement, String(i)] as const)
        .filter(([e]) => e.matches("a[href], button:not([disabled]), input, select, textarea, summary") && e.offsetParent !== null && getComputedStyle(e).visibility !== "hidden")
        .filter(([e, key]) => !keys.includes(key) && e.tabIndex >= 0 && !(e as HTMLInputElement).disabled)
        .map(([e]) => `${e.tagName} ${e.getAttribute("aria-label") ?? e.textContent?.slice(0, 40)}`);
    }, [...reached]);
    return { reached: reached.size, missed, unseen };
  }

  it("axe finds nothing serious, and the keyboard reaches everything and shows where it is", { timeout: patience }, async () => {
    const { page, errors } = await open(browser);
    for (const [name, path] of pages) {
      await page.goto(serve.url + path);
      await settled(page);
      expect(await page.locator("h1, .state strong").count(), name).toBeGreaterThan(0);
      await accessible(page, name);
      const { reached, missed, unseen } = await walk(page);
      expect({ missed, unseen }, name).toEqual({ missed: [], unseen: [] });
      expect(reached, name).toBeGreaterThan(8);
    }
    // The first stop skips the navigation.
    await page.goto(`${serve.url}/costs?month=2026-10`);
    await settled(page);
    await page.keyboard.press("Tab");
    expect(await page.evaluate(() => document.activeElement?.textContent?.trim())).toBe("Skip to the page");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.activeElement?.id === "page");
    expect(errors).toEqual([]);
  });
});
