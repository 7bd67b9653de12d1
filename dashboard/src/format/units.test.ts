import { expect, it } from "vitest";
import { bytes, count, plural, reading } from "./units";

it("sizes have binary prefixes and three digits at most", () => {
  expect([0, 1023, 1024, 1536, 10 * 1024, 1024 ** 3 * 15.5, 1024 ** 5 * 2].map(bytes)).toEqual(["0 B", "1023 B", "1.00 KiB", "1.50 KiB", "10.0 KiB", "15.5 GiB", "2.00 PiB"]);
});

it("a reading has its unit, and a gap is no zero", () => {
  expect(reading(42.26, "percent")).toBe("42.3 %");
  expect(reading(2048, "bytes/s")).toBe("2.00 KiB/s");
  expect(reading(0, "requests/s")).toBe("0 req/s");
  expect(reading(null, "percent")).toBe("\u2013");
});

it("counts are grouped, nouns agree", () => {
  expect(count(1234567)).toBe("1,234,567");
  expect([plural("run", 1), plural("run", 0), plural("delivery", 2, "deliveries")]).toEqual(["1 run", "0 runs", "2 deliveries"]);
});
