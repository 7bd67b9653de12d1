import { expect, it } from "vitest";
import { hits } from "../ui/search";
import { behindFirst } from "./behind";
import { everyDay } from "./costs";
import { same } from "./explain";
import { linesOf } from "./instance";
import { request } from "./quote";

it("a month has all its days, leap years included", () => {
  expect(everyDay("2028-02").length).toBe(29);
  expect(everyDay("2026-11").at(-1)).toBe("2026-11-30");
  expect(everyDay("")).toEqual([]);
});

it("a quote asks with the very digits that were typed", () => {
  expect(request([{ metric: "memory", qty: " 0.100000000000000000001 ", attributes: { flavor_name: "m1", vcpus: "" } }], "")).toEqual({ items: [{ metric: "memory", qty: "0.100000000000000000001", attributes: { flavor_name: "m1" } }] });
  expect(request([{ metric: "memory", qty: "1", attributes: {} }], "p")).toEqual({ project: "p", items: [{ metric: "memory", qty: "1" }] });
});

it("what is found opens its page and keeps the range; names stay text", () => {
  const time = "2026-11-29T00:00:00Z";
  const found = hits(
    {
      query: "x",
      instances: [{ id: "8c3f", name: "<b>x</b>", region: "R", project_id: "p1", project_name: "", flavor_name: "", vcpus: 1, first_seen: time, last_seen: time }],
      projects: [{ id: "p&1", name: "", domain: "", active: true }],
      hosts: [{ region: "R", host: "x.example", last_sample: time, silent: false }],
    },
    { range: "24h", end: null },
  );
  expect(found.map((h) => [h.kind, h.name, h.address])).toEqual([
    ["Instances", "<b>x</b>", "/instances/8c3f?range=24h"],
    ["Projects", "p&1", "/costs?project=p%261&group=metric"],
    ["Hosts", "x.example", "/nodes?region=R&host=x.example&range=24h"],
  ]);
});

it("neither a currency of the past nor a disabled scope is furthest behind", () => {
  const row = (scope: string, currency: string, rated_until: string) => ({ scope, currency, rated_until });
  const rows = [row("a", "EUR", "2026-07-01T00:00:00Z"), row("a", "USD", "2026-11-30T10:00:00Z"), row("b", "USD", "2026-11-29T08:00:00Z"), row("off", "EUR", "2026-03-01T00:00:00Z")];
  const got = behindFirst(rows, { off: { active: false }, a: { active: true } });
  expect(got.behind).toBe("2026-11-29T08:00:00Z");
  expect(got.rows.map((x) => `${x.scope} ${x.currency}`)).toEqual(["b USD", "a USD", "off EUR", "a EUR"]);
  expect(behindFirst(rows.slice(3), { off: { active: false } }).behind).toBeUndefined();
  expect(behindFirst([], {})).toEqual({ rows: [], behind: undefined });
});

it("the plan in force gives the same only in the same currency", () => {
  const x = { price: "1.0", currency: "EUR", price_by_the_plan: "1", currency_by_the_plan: "EUR" };
  expect(same(x)).toBe(true);
  expect(same({ ...x, currency_by_the_plan: "USD" })).toBe(false);
  expect(same({ ...x, price_by_the_plan: "1.1" })).toBe(false);
});

it("the lines behind an instance's figure are of all it belonged to, a closed month's by themselves", () => {
  const [a, b, c] = ["2026-10-31T20:00:00Z", "2026-11-01T00:00:00Z", "2026-11-01T02:00:00Z"] as const;
  const address = (begin: string, end: string, more = "") => `/costs/lines?begin=${encodeURIComponent(begin)}&end=${encodeURIComponent(end)}&instance=i${more}&metric=memory`;
  expect(linesOf({ parts: [{ begin: a, end: c }], projects: ["p"] }, "i", "memory")).toEqual([{ begin: a, address: address(a, c, "&project=p") }]);
  expect(linesOf({ parts: [{ begin: a, end: b }, { begin: b, end: c }], projects: ["p", "q"] }, "i", "memory")).toEqual([
    { begin: a, address: address(a, b) },
    { begin: b, address: address(b, c) },
  ]);
});
