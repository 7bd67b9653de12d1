/*
 * Times come in RFC 3339 UTC and are shown in UTC or in the reader's own zone,
 * and the page always says which.
 */

export type Zone = "utc" | "local";

/** The reader's zone by name, such as Europe/Berlin; "local time" where the browser does not know. */
export function localZone(): string {
  return Intl.DateTimeFormat().resolvedOptions().timeZone || "local time";
}

/** What a page says of its times. */
export function zoneName(zone: Zone): string {
  return zone === "utc" ? "UTC" : localZone();
}

const formatters = new Map<string, Intl.DateTimeFormat>();

function parts(at: Date, zone: Zone): Record<string, string> {
  let f = formatters.get(zone);
  if (!f) {
    f = new Intl.DateTimeFormat("en-GB", {
      timeZone: zone === "utc" ? "UTC" : undefined,
      year: "numeric",
      month: "2-digit",
      day: "2-digit",
      hour: "2-digit",
      minute: "2-digit",
      second: "2-digit",
      hourCycle: "h23",
    });
    formatters.set(zone, f);
  }
  return Object.fromEntries(f.formatToParts(at).map((p) => [p.type, p.value]));
}

/** Whether the server means a moment: Go's zero time and the open end mean "never". */
export function isMoment(text: string | null | undefined): text is string {
  return !!text && text > "1971" && text < "2100";
}

/** 2026-11-29 14:05, or an en dash where there is no moment. */
export function moment(text: string | null | undefined, zone: Zone): string {
  if (!isMoment(text)) return "\u2013";
  const p = parts(new Date(text), zone);
  return `${p.year}-${p.month}-${p.day} ${p.hour}:${p.minute}`;
}

/** 14:05:09 */
export function clock(at: Date, zone: Zone): string {
  const p = parts(at, zone);
  return `${p.hour}:${p.minute}:${p.second}`;
}

/** A window: the day is said once when begin and end share it. */
export function span(begin: string, end: string, zone: Zone): string {
  const a = moment(begin, zone);
  const b = moment(end, zone);
  return a.slice(0, 10) === b.slice(0, 10) ? `${a}\u2013${b.slice(11)}` : `${a} \u2013 ${b}`;
}

/** 3 d 4 h, 12 min, 40 s: the two largest units. */
export function duration(seconds: number): string {
  const s = Math.max(0, seconds);
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 60) return `${Math.round(s)} s`;
  const units: [number, string][] = [
    [86400, "d"],
    [3600, "h"],
    [60, "min"],
  ];
  let left = Math.round(s / 60) * 60;
  const out: string[] = [];
  for (const [size, name] of units) {
    const n = Math.floor(left / size);
    if (n > 0) out.push(`${n} ${name}`);
    left -= n * size;
    if (out.length === 2) break;
  }
  return out.join(" ");
}

/** "5 min ago"; the moment itself belongs beside it or in a title. */
export function ago(text: string, now: Date): string {
  const s = (now.getTime() - Date.parse(text)) / 1000;
  return s < 0 ? "in the future" : s < 60 ? "just now" : `${duration(s)} ago`;
}

/** Months beside another: shift("2026-01", -1) is 2025-12. */
export function shiftMonth(month: string, by: number): string {
  const [y, m] = month.split("-").map(Number) as [number, number];
  const n = y * 12 + (m - 1) + by;
  return `${Math.floor(n / 12)}-${String((n % 12) + 1).padStart(2, "0")}`;
}

/** November 2026 */
export function monthName(month: string): string {
  const at = new Date(`${month}-01T00:00:00Z`);
  return new Intl.DateTimeFormat("en-GB", { month: "long", year: "numeric", timeZone: "UTC" }).format(at);
}

/** dateIn is the date of a moment in a time zone, as 2026-11-01; of what is no moment its first ten characters. */
export function dateIn(text: string, zone: string): string {
  const at = new Date(text);
  if (Number.isNaN(at.getTime())) return text.slice(0, 10);
  const parts = new Intl.DateTimeFormat("en-US", { timeZone: zone, year: "numeric", month: "2-digit", day: "2-digit" }).formatToParts(at);
  const of = (type: string) => parts.find((p) => p.type === type)?.value ?? "";
  return `${of("year")}-${of("month")}-${of("day")}`;
}
