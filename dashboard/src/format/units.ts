/* Readings of charts: percent, bytes, rates. Not for money or billed quantities, which are decimals. */

const binary = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

function digits(v: number): string {
  if (v === 0) return "0";
  const a = Math.abs(v);
  return a >= 100 ? v.toFixed(0) : a >= 10 ? v.toFixed(1) : v.toFixed(2);
}

/** bytes writes a size with a binary prefix. */
export function bytes(v: number): string {
  let i = 0;
  let n = v;
  while (Math.abs(n) >= 1024 && i < binary.length - 1) {
    n /= 1024;
    i++;
  }
  return `${i === 0 ? Math.round(n) : digits(n)} ${binary[i]}`;
}

/** reading writes a value of a chart with its unit; an en dash where nobody observed it. */
export function reading(v: number | null | undefined, unit: string): string {
  if (v === null || v === undefined) return "\u2013";
  switch (unit) {
    case "percent":
      return `${digits(v)} %`;
    case "bytes":
      return bytes(v);
    case "bytes/s":
      return `${bytes(v)}/s`;
    case "requests/s":
      return `${digits(v)} req/s`;
    default:
      return `${digits(v)} ${unit}`;
  }
}

/** count writes a whole number in groups of three. */
export function count(n: number): string {
  return String(Math.trunc(n)).replace(/\B(?=(\d{3})+$)/g, ",");
}

/** plural("run", 2) is "2 runs". */
export function plural(noun: string, n: number, many = noun + "s"): string {
  return `${count(n)} ${n === 1 ? noun : many}`;
}
