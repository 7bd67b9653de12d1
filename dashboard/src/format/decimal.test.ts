import { describe, expect, it } from "vitest";
import { compare, format, fractionDigits, greatest, isDecimal, share, sign } from "./decimal";

describe("format", () => {
  for (const [rule, text, least, want] of [
    ["every digit is kept", "1234567.123456789012345678", 2, "1,234,567.123456789012345678"],
    ["digits a float cannot hold are kept", "90071992547409930.1000000000000001", 2, "90,071,992,547,409,930.1000000000000001"],
    ["trailing zeros go, two digits stay", "12.340000000000000000", 2, "12.34"],
    ["cents are written out", "5", 2, "5.00"],
    ["one digit gets a second", "0.1", 2, "0.10"],
    ["three whole digits stay together", "999", 0, "999"],
    ["four get a comma", "1000", 0, "1,000"],
    ["a quantity needs no zeros", "3.500", 0, "3.5"],
    ["a negative amount has a minus sign", "-1234.5", 2, "\u22121,234.50"],
    ["there is no negative zero", "-0.000", 2, "0.00"],
    ["leading zeros go", "007.5", 2, "7.50"],
  ] as const) {
    it(rule, () => expect(format(text, least).text).toBe(want));
  }

  it("tells cents from what lies behind them", () => {
    expect(format("1000.123456")).toMatchObject({ head: "1,000", cents: ".12", rest: "3456" });
    expect(format("0.000000000000000001", 0)).toMatchObject({ head: "0", cents: ".", rest: "000000000000000001" });
  });

  it("refuses what is no decimal, rather than showing NaN as money", () => {
    for (const bad of ["", "1e3", "NaN", "1,5", ".5", "5.", "--1", "<b>1</b>"]) {
      expect(() => format(bad), bad).toThrow(RangeError);
      expect(isDecimal(bad), bad).toBe(false);
    }
  });
});

describe("order", () => {
  it("is by value, not by text", () => {
    const sorted = ["10", "9.99", "-2", "2", "0.1", "-10", "0.09"].sort(compare);
    expect(sorted).toEqual(["-10", "-2", "0.09", "0.1", "2", "9.99", "10"]);
  });
  it("sees the last of 38 digits", () => {
    expect(compare("10000000000000000000.000000000000000001", "10000000000000000000")).toBe(1);
    expect(compare("1.50", "1.5")).toBe(0);
  });
  it("finds the greatest, and 0 of none", () => {
    expect(greatest(["2", "10.01", "10"])).toBe("10.01");
    expect(greatest([])).toBe("0");
  });
  it("knows signs", () => {
    expect([sign("-0.0"), sign("0.000001"), sign("-3")]).toEqual([0, 1, -1]);
  });
});

describe("share", () => {
  it("sizes bars in thousandths, within the bar", () => {
    expect(share("0.5", "2")).toBe(250);
    expect(share("2", "2")).toBe(1000);
    expect(share("3", "2")).toBe(1000);
    expect(share("-1", "2")).toBe(0);
    expect(share("1", "0")).toBe(0);
  });
});

it("fractionDigits leaves trailing zeros aside", () => {
  expect([fractionDigits("1"), fractionDigits("1.00"), fractionDigits("1.050")]).toEqual([0, 0, 2]);
});
