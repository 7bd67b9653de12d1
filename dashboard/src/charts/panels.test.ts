import { expect, it, vi } from "vitest";
import type { SeriesAnswer } from "../api/types";

// uPlot asks for the screen's pixel ratio as it is loaded; here is no screen.
vi.mock("uplot", () => ({ default: class {} }));
vi.mock("uplot/dist/uPlot.min.css", () => ({}));
const { drawn, instancePanels } = await import("./panels");
const { summary } = await import("./line");

const port = (n: number) => `11111111-0000-4000-8000-00000000000${n}`;
const answer: SeriesAnswer = {
  range: "24h",
  tier: "5min",
  begin: "2026-11-29T00:00:00Z",
  end: "2026-11-30T00:00:00Z",
  step_seconds: 300,
  panels: [
    { panel: "cpu", times: ["2026-11-29T00:00:00Z", "2026-11-29T00:05:00Z"], series: [
      { metric: "cpu_avg", resource: "", unit: "percent", values: [1, 2] },
      { metric: "cpu_max", resource: "", unit: "percent", values: [10, null] },
    ] },
    { panel: "network", times: ["2026-11-29T00:00:00Z"], series: [
      { metric: "rx_bytes", resource: port(1), unit: "bytes/s", values: [1] },
      { metric: "tx_bytes", resource: port(1), unit: "bytes/s", values: [2] },
      { metric: "rx_bytes", resource: port(2), unit: "bytes/s", values: [3] },
    ] },
    { panel: "disk", times: ["2026-11-29T00:00:00Z"], series: [{ metric: "read_bytes", resource: "vda", unit: "bytes/s", values: [null] }] },
  ],
};
const want = (key: string) => instancePanels.find((p) => p.key === key)!;

it("the average is drawn over the highest, gaps stay gaps", () => {
  expect(drawn(want("cpu"), answer)?.series.map((s) => [s.name, s.values])).toEqual([
    ["Highest", [10, null]],
    ["Average", [1, 2]],
  ]);
});

it("ports that begin alike get as many characters as tell them apart", () => {
  const names = drawn(want("network"), answer)!.series.map((s) => s.name);
  expect(new Set(names).size).toBe(3);
  expect(names[0]).toBe(`Received ${port(1)}`);
});

it("what is sent is drawn downwards", () => {
  expect(drawn(want("network"), answer)!.series.map((s) => s.mirrored)).toEqual([false, false, true]);
});

it("a panel nobody measured is empty, not a line at zero", () => {
  expect(drawn(want("disk"), answer)).toBeNull();
  expect(drawn(want("memory"), answer)).toBeNull();
});

it("figures leave gaps aside", () => {
  expect(summary([null, 4, null, 2, null])).toEqual({ last: 2, average: 3, peak: 4 });
  expect(summary([null])).toBeNull();
});
