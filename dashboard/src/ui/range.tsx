/* The range of charts: kept in the address, so that a link opens the same window. */
import { useState } from "react";
import type { Range, SeriesAnswer } from "../api/types";
import { moment, zoneName } from "../format/time";
import { useParam } from "../router";
import { useShared } from "../settings";
import { Pick } from "./parts";

const ranges: readonly (readonly [Range, string])[] = [
  ["6h", "6 h"],
  ["12h", "12 h"],
  ["24h", "24 h"],
  ["7d", "7 d"],
];

export const tierNames: Record<SeriesAnswer["tier"], string> = { raw: "raw samples", "5min": "5-minute tier", hourly: "hourly tier" };

export interface Window {
  range: Range;
  end: string | null;
}

/** useWindow reads the range and its end; without an end it is now, and moves on. */
export function useWindow(): [Window, (range: Range) => void, (end: string | null) => void] {
  const [range, setRange] = useParam("range", "6h");
  const [end, setEnd] = useParam("end");
  const known = ranges.some(([r]) => r === range) ? (range as Range) : "6h";
  return [{ range: known, end: Number.isNaN(Date.parse(end)) ? null : end }, setRange, (e) => setEnd(e ?? "")];
}

/** How often charts ask again: never, where the window has a fixed end. */
export function refreshOf(w: Window): number {
  return w.end === null ? 60_000 : 0;
}

export function RangePick({ shown }: { shown: { end: string } | null }) {
  const [w, setRange, setEnd] = useWindow();
  const { zone } = useShared();
  const [copied, setCopied] = useState(false);
  const hold = () => {
    if (!shown) return;
    setEnd(shown.end);
    // Where the clipboard is forbidden the address bar still holds the link.
    navigator.clipboard?.writeText(location.href).then(
      () => setCopied(true),
      () => undefined,
    );
    setTimeout(() => setCopied(false), 2500);
  };
  return (
    <>
      {w.end === null ? (
        <button type="button" className="button" onClick={hold} disabled={!shown} title="Keeps this very window in the address">
          Link to this window
        </button>
      ) : (
        <>
          <span className="small quiet" role="status">
            {copied ? "Link copied. " : ""}Ends {moment(w.end, zone)} {zoneName(zone)}
          </span>
          <button type="button" className="button" onClick={() => setEnd(null)}>
            Back to now
          </button>
        </>
      )}
      <Pick label="Range" value={w.range} options={ranges} onPick={setRange} />
    </>
  );
}
