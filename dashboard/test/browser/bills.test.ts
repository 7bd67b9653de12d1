import { join } from "node:path";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import type { CostAnswer, ExportList, LateList, MonthList, ScheduleList, Session, UnpricedList } from "../../src/api/types";
import { format } from "../../src/format/decimal";
import { monthName } from "../../src/format/time";
import { accessible, launch, open, settled, shot } from "./browser";
import { billsZone, freePort, json, Serve } from "./cloud";

const why = inject("why");

/* What the jobs of a month leave behind: see prepareBills. */
describe.skipIf(why !== "")("bills of a month that was closed, in a time zone of their own", () => {
  let browser: Browser;
  let serve: Serve;
  const api = <T>(path: string) => json<T>(`${serve.url}/api/v1${path}`);

  beforeAll(async () => {
    serve = new Serve(join(inject("data"), "bills"), await freePort());
    await serve.start();
    browser = await launch();
  });
  afterAll(async () => {
    await browser?.close();
    await serve?.stop();
  });

  /** rows opens a list of Rating and gives its rows. */
  async function rows(tab: string) {
    const { page, errors } = await open(browser);
    await page.goto(`${serve.url}/rating/${tab}`);
    await settled(page);
    const list = page.locator("main .panel tbody tr");
    await list.first().waitFor();
    return { page, errors, list };
  }
  /** plain is what a cell shows, without the blanks between digits. */
  const plain = (text: string) => text.replaceAll(/\s+/g, " ");

  it("Months: the closed one keeps its bill, the correction stands beside it, to the last digit", async () => {
    const { page, errors, list } = await rows("months");
    const months = (await api<MonthList>("/rating/months")).months;
    expect(months.map((m) => [m.month, m.state])).toEqual([
      ["2026-10", "open"],
      ["2026-09", "closed"],
    ]);
    const [open, closed] = months as [(typeof months)[0], (typeof months)[0]];
    // Tokyo's October begins at 15:00 UTC of 30 September.
    expect([closed.end, open.begin]).toEqual(["2026-09-30T15:00:00Z", "2026-09-30T15:00:00Z"]);
    expect(closed.corrections.length).toBe(1);
    expect(Number(closed.corrections[0]!.amount)).toBeGreaterThan(0);
    expect(await list.count()).toBe(2);
    const text = plain(await list.nth(1).innerText());
    expect(text).toContain("September 2026");
    expect(text).toContain("closed");
    expect(text).toContain("invoices 2026-09");
    expect(text).toContain(format(closed.totals[0]!.amount).text);
    expect(text).toContain(`+${format(closed.corrections[0]!.amount).text}`);
    // What the costs say of the closed month is the frozen bill.
    const costs = await api<CostAnswer>("/costs?month=2026-09&group=");
    expect([costs.closed, costs.totals[0]!.price]).toEqual([true, closed.totals[0]!.amount]);
    await shot(page, "bills-months");
    await accessible(page, "months");
    await list.nth(1).getByRole("link", { name: "September 2026" }).click();
    await settled(page);
    await page.getByText("Total, closed month").waitFor();
    expect(await page.locator(".tile dd.value").first().textContent()).toBe(format(closed.totals[0]!.amount).text + closed.totals[0]!.currency);
    await shot(page, "bills-closed-month");
    expect(errors).toEqual([]);
  });

  it("Late usage: what waits for a decision, with what it is worth", async () => {
    const { page, errors, list } = await rows("late");
    const late = (await api<LateList>("/rating/late")).late;
    expect(late.length).toBeGreaterThan(0);
    expect(await list.count()).toBe(late.length);
    for (const [i, x] of late.entries()) {
      const text = plain(await list.nth(i).innerText());
      for (const part of [x.scope, x.kind, x.action, String(x.found_rows), format(x.found_total).text]) expect(text).toContain(part);
      expect(x.found_rows).toBeGreaterThan(x.committed_rows);
    }
    await shot(page, "bills-late");
    await accessible(page, "late usage");
    expect(errors).toEqual([]);
  });

  it("Reprocessing: one request that was executed and one that waits", async () => {
    const { page, errors, list } = await rows("schedules");
    const schedules = (await api<ScheduleList>("/rating/schedules")).schedules;
    expect(schedules.map((x) => x.reason)).toEqual(["late usage of 1 October", "agents of rack 7 were cut off"]);
    expect(schedules[1]!.state).toBe("done");
    expect(schedules[0]!.state).not.toBe("done");
    expect(await list.count()).toBe(2);
    expect(plain(await list.nth(0).innerText())).toContain("project-0001");
    expect(plain(await list.nth(1).innerText())).toMatch(/all .*done.*agents of rack 7 were cut off/);
    await shot(page, "bills-reprocessing");
    await accessible(page, "reprocessing");
    expect(errors).toEqual([]);
  });

  it("Exports: each delivery with its manifest and its exact total", async () => {
    const { page, errors, list } = await rows("exports");
    const deliveries = (await api<ExportList>("/rating/exports")).exports;
    expect(deliveries.map((x) => [x.dataset, x.month]).sort()).toEqual([
      ["lines", "2026-09"],
      ["lines", "2026-10"],
      ["summary", "2026-10"],
    ]);
    expect(await list.count()).toBe(3);
    for (const [i, x] of deliveries.entries()) {
      const text = plain(await list.nth(i).innerText());
      for (const part of [x.dataset, monthName(x.month), x.manifest_sha256.slice(0, 12), format(x.totals[0]!.amount).text]) expect(text).toContain(part);
    }
    // What finance was given for September is what the page shows as its bill.
    const closed = (await api<MonthList>("/rating/months")).months.find((m) => m.month === "2026-09")!;
    expect(deliveries.find((x) => x.month === "2026-09")!.totals).toEqual(closed.totals);
    await shot(page, "bills-exports");
    await accessible(page, "exports");
    expect(errors).toEqual([]);
  });

  it("Unpriced: usage that no rule prices, and its lines in the month it is billed in", async () => {
    const { page, errors } = await open(browser);
    await page.goto(`${serve.url}/rating/unpriced?month=2026-10`);
    await settled(page);
    const list = await api<UnpricedList>("/rating/unpriced?month=2026-10");
    expect([list.month, list.begin]).toEqual(["2026-10", "2026-09-30T15:00:00Z"]);
    expect(list.unpriced.every((x) => x.metric === "disk.io.requests" && x.bucket === "unpriced")).toBe(true);
    const shown = page.locator("main .panel tbody tr");
    expect(await shown.count()).toBe(list.unpriced.length);
    await shot(page, "bills-unpriced");
    await accessible(page, "unpriced");
    await shown.first().getByRole("link").click();
    await settled(page);
    expect(new URL(page.url()).searchParams.get("month")).toBe("2026-10");
    expect(await page.locator("main tbody tr").count()).toBeGreaterThan(0);
    expect(errors).toEqual([]);
  });

  it("months are the billing time zone's, whatever the browser's zone is", async () => {
    const session = await api<Session>("/session");
    expect(session.billing_timezone).toBe(billsZone);
    const inTokyo = new Intl.DateTimeFormat("en-CA", { timeZone: billsZone, year: "numeric", month: "2-digit" }).format(new Date(session.now));
    expect(session.month).toBe(inTokyo);
    for (const timezoneId of ["America/Los_Angeles", "UTC"]) {
      const { page, errors } = await open(browser, { timezoneId });
      await page.goto(`${serve.url}/costs?month=2026-10&group=month`);
      await settled(page);
      await page.getByRole("heading", { name: "Costs of October 2026" }).waitFor();
      // Both months begin where the zone says; by UTC all but a few hours would be September's.
      const byMonth = await api<CostAnswer>("/costs?month=2026-10&months=12&group=month&order=group&compare=none");
      expect(byMonth.rows.map((r) => r.month)).toEqual(["2026-09", "2026-10"]);
      const shown = page.locator("section[aria-label='By month'] tbody tr");
      expect(await shown.count()).toBe(2);
      for (const [i, r] of byMonth.rows.entries()) {
        const text = plain(await shown.nth(i).innerText());
        expect(text).toContain(monthName(r.month!));
        expect(text).toContain(format(r.price).text);
        expect((await api<CostAnswer>(`/costs?month=${r.month}&group=`)).totals[0]!.price).toBe(r.price);
      }
      await page.goto(`${serve.url}/costs?month=2026-10&group=day`);
      await settled(page);
      expect(plain(await page.locator("section[aria-label='By day'] tbody tr").first().innerText())).toContain("2026-10-01");
      await page.getByText(`in ${billsZone}`).first().waitFor();
      expect(await page.locator(".foot").innerText()).toContain(`Days and months of bills in ${billsZone}`);
      if (timezoneId === "UTC") await shot(page, "bills-zone");
      expect(errors).toEqual([]);
      await page.context().close();
    }
  });

  it("at a month's end the page opens the month that it is in the billing time zone", async () => {
    const { page } = await open(browser, { timezoneId: "America/Los_Angeles" });
    // In Tokyo it is October already. Only the server's word for it counts.
    await page.route("**/api/v1/session", async (route) => {
      const body = await (await route.fetch()).json();
      await route.fulfill({ json: { ...body, now: "2026-09-30T18:00:00Z", month: "2026-10" } });
    });
    const asked: string[] = [];
    page.on("request", (r) => asked.push(r.url()));
    await page.goto(`${serve.url}/costs?month=2026-09`);
    await settled(page);
    const field = page.getByLabel("Month", { exact: true });
    expect(await field.getAttribute("max")).toBe("2026-10");
    await page.getByRole("button", { name: "The month after" }).click();
    await page.getByRole("heading", { name: "Costs of October 2026" }).waitFor();
    expect(await page.getByRole("button", { name: "The month after" }).isDisabled()).toBe(true);
    expect(asked.filter((a) => a.includes("begin=") || a.includes("end="))).toEqual([]);
  });
});
