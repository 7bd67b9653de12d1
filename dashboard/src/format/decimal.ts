/*
 * Exact decimals as strings, as the API gives them: an optional minus, digits,
 * and perhaps a point with digits behind it. People are billed from these
 * figures, so nothing here goes through a float: comparison and proportions use
 * BigInt, and sums come from the server.
 */

const pattern = /^(-?)(\d+)(?:\.(\d+))?$/;

interface Parts {
  negative: boolean;
  whole: string;
  fraction: string;
}

function parse(text: string): Parts {
  const m = pattern.exec(text);
  if (!m) throw new RangeError(`"${text}" is no decimal`);
  return {
    negative: m[1] === "-",
    whole: m[2]!.replace(/^0+(?=\d)/, ""),
    fraction: (m[3] ?? "").replace(/0+$/, ""),
  };
}

/** Whether text is a decimal that this file and the server understand. */
export function isDecimal(text: string): boolean {
  return pattern.test(text);
}

export interface Formatted {
  /** Minus sign (U+2212) and whole digits in groups of three. */
  head: string;
  /** The point and the first `least` digits behind it. */
  cents: string;
  /** All further digits that are not trailing zeros; dimmed by the view, never left out. */
  rest: string;
  /** head, cents and rest together. */
  text: string;
}

/**
 * format writes a decimal with every digit it has: whole digits in groups,
 * at least `least` digits behind the point, no trailing zeros behind those.
 */
export function format(text: string, least = 2): Formatted {
  const p = parse(text);
  const zero = !/[1-9]/.test(p.whole + p.fraction);
  const head = (p.negative && !zero ? "\u2212" : "") + p.whole.replace(/\B(?=(\d{3})+$)/g, ",");
  const fraction = p.fraction.padEnd(least, "0");
  const cents = fraction === "" ? "" : "." + fraction.slice(0, least);
  const rest = fraction.slice(least);
  return { head, cents, rest, text: head + cents + rest };
}

/** sign is -1, 0 or 1. */
export function sign(text: string): -1 | 0 | 1 {
  const p = parse(text);
  if (!/[1-9]/.test(p.whole + p.fraction)) return 0;
  return p.negative ? -1 : 1;
}

/** How many digits behind the point a decimal needs, trailing zeros aside. */
export function fractionDigits(text: string): number {
  return parse(text).fraction.length;
}

function scaled(p: Parts, digits: number): bigint {
  const n = BigInt(p.whole + p.fraction.padEnd(digits, "0"));
  return p.negative ? -n : n;
}

/** compare orders decimals by value: "2" before "10", "1.0" beside "1". */
export function compare(a: string, b: string): -1 | 0 | 1 {
  const x = parse(a);
  const y = parse(b);
  const digits = Math.max(x.fraction.length, y.fraction.length);
  const m = scaled(x, digits);
  const n = scaled(y, digits);
  return m < n ? -1 : m > n ? 1 : 0;
}

/** The greatest of the decimals; "0" of none. */
export function greatest(all: readonly string[]): string {
  return all.reduce((a, b) => (compare(a, b) >= 0 ? a : b), "0");
}

/**
 * share is value/of in thousandths, rounded down and held within 0…1000. It
 * sizes bars; a figure never comes from it.
 */
export function share(value: string, of: string): number {
  const x = parse(value);
  const y = parse(of);
  const digits = Math.max(x.fraction.length, y.fraction.length);
  const n = scaled(y, digits);
  if (n <= 0n) return 0;
  const r = (scaled(x, digits) * 1000n) / n;
  return r < 0n ? 0 : r > 1000n ? 1000 : Number(r);
}
