/*
 * A time series on uPlot's canvas (see README for why uPlot), with what a canvas
 * cannot give: a legend with figures as a table, a cursor by keyboard that is
 * read out, and a text that says what is drawn.
 */
import { useEffect, useId, useMemo, useRef, useState } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { moment } from "../format/time";
import { reading } from "../format/units";
import { useShared } from "../settings";

export interface Drawn {
  name: string;
  unit: string;
  values: readonly (number | null)[];
  /** Drawn below the axis, as what flows the other way: sent beside received, written beside read. */
  mirrored?: boolean;
}

export const palette = 8;

/* Sizes are read in powers of two, so the axis steps by them: 512 KiB, 1 MiB, 2 MiB. */
const binarySteps = Array.from({ length: 52 }, (_, i) => 2 ** i);

function colour(i: number): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--series-${(i % palette) + 1}`).trim();
}

function token(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** summary gives a series' figures, gaps aside; null without any value. */
export function summary(values: readonly (number | null)[]): { last: number; average: number; peak: number } | null {
  let n = 0;
  let sum = 0;
  let peak = -Infinity;
  let last = 0;
  for (const v of values) {
    if (v === null) continue;
    n++;
    sum += v;
    if (v > peak) peak = v;
    last = v;
  }
  return n === 0 ? null : { last, average: sum / n, peak };
}

/**
 * LineChart draws series over shared times. begin and end (RFC 3339) are the
 * question's window: an answer that ends early shows where it ends. Charts with
 * the same group share the cursor.
 */
export function LineChart({ label, times, series, begin, end, group, percent }: { label: string; times: readonly string[]; series: readonly Drawn[]; begin: string; end: string; group: string; percent?: boolean }) {
  const { zone, shade } = useShared();
  const holder = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [at, setAt] = useState<number | null>(null);
  const [hidden, setHidden] = useState<ReadonlySet<string>>(new Set());
  const help = useId();

  const shape = series.map((s) => `${s.name}|${s.unit}|${s.mirrored ? 1 : 0}`).join("\n");
  const unit = series[0]?.unit ?? "";
  const data = useMemo<uPlot.AlignedData>(
    () => [times.map((t) => Date.parse(t) / 1000), ...series.map((s) => (s.mirrored ? s.values.map((v) => (v === null ? null : -v)) : [...s.values]))],
    [times, series],
  );
  const from = Date.parse(begin) / 1000;
  const until = Date.parse(end) / 1000;
  const latest = useRef({ data, from, until });
  latest.current = { data, from, until };

  useEffect(() => {
    const el = holder.current;
    if (!el) return;
    const text = token("--text-2");
    const grid = { stroke: token("--grid"), width: 1 };
    const font = `12px ${getComputedStyle(el).fontFamily}`;
    const p = new uPlot(
      {
        width: el.clientWidth,
        height: el.clientHeight,
        legend: { show: false },
        tzDate: (ts) => (zone === "utc" ? uPlot.tzDate(new Date(ts * 1000), "Etc/UTC") : new Date(ts * 1000)),
        cursor: { sync: { key: group, setSeries: false }, drag: { x: false, y: false }, points: { size: 6 } },
        scales: {
          x: { range: () => [latest.current.from, latest.current.until] },
          y: {
            range: (_u, low, high) => {
              const top = high === null || high <= 0 ? 0 : high;
              const bottom = low === null || low >= 0 ? 0 : low;
              if (percent) return [0, Math.max(top * 1.08, 10)];
              const room = (top - bottom || 1) * 0.08;
              return [bottom === 0 ? 0 : bottom - room, top === 0 && bottom < 0 ? 0 : (top || 1) + room];
            },
          },
        },
        axes: [
          { stroke: text, grid, ticks: grid, font, values: [[86400, "{DD} {MMM}", null, null, null, null, null, null, 1], [3600, "{HH}:{mm}", "\n{DD} {MMM}", null, "\n{DD} {MMM}", null, null, null, 1], [60, "{HH}:{mm}", "\n{DD} {MMM}", null, "\n{DD} {MMM}", null, null, null, 1]] },
          { stroke: text, grid, ticks: { show: false }, font, size: 76, space: 34, ...(unit.startsWith("bytes") ? { incrs: binarySteps } : {}), values: (_u, marks) => marks.map((v) => reading(Math.abs(v), unit)) },
        ],
        series: [{}, ...series.map((s, i) => ({ label: s.name, stroke: colour(i), width: 1.5, spanGaps: false, points: { show: false }, fill: series.length <= 2 ? colour(i) + "1f" : undefined }))],
        hooks: { setCursor: [(u) => setAt(u.cursor.idx ?? null)] },
      },
      latest.current.data,
      el,
    );
    plot.current = p;
    // The canvas is a picture to a screen reader; the figure's own text and table say what it shows.
    p.root.setAttribute("aria-hidden", "true");
    const sized = new ResizeObserver(() => p.setSize({ width: el.clientWidth, height: el.clientHeight }));
    sized.observe(el);
    return () => {
      sized.disconnect();
      p.destroy();
      plot.current = null;
    };
    // A new plot for another shape, theme or zone; new figures go into the one there is.
    // eslint-disable-next-line
  }, [shape, shade, zone, group, percent, unit]);

  useEffect(() => plot.current?.setData(data), [data, from, until]);
  useEffect(() => {
    series.forEach((s, i) => plot.current?.setSeries(i + 1, { show: !hidden.has(s.name) }));
    // eslint-disable-next-line
  }, [hidden, shape, shade, zone]);

  const move = (to: number) => {
    const p = plot.current;
    if (!p || times.length === 0) return;
    const i = Math.max(0, Math.min(times.length - 1, to));
    p.setCursor({ left: p.valToPos(latest.current.data[0]![i]!, "x"), top: 10 });
  };
  const cursor = at !== null && at < times.length ? at : null;
  return (
    <figure aria-label={label}>
      <div
        ref={holder}
        className="chart"
        tabIndex={0}
        role="img"
        aria-label={`${label}: ${series.map((s) => s.name).join(", ")}, ${moment(begin, zone)} to ${moment(end, zone)}`}
        aria-describedby={help}
        data-points={times.length}
        onKeyDown={(e) => {
          const here = cursor ?? times.length - 1;
          const next: Record<string, number> = { ArrowLeft: here - 1, ArrowRight: here + 1, PageUp: here - 10, PageDown: here + 10, Home: 0, End: times.length - 1 };
          if (e.key in next) {
            e.preventDefault();
            move(next[e.key]!);
          }
        }}
      />
      <p id={help} className="sr">
        Arrow keys move along the time; the table below holds the figures.
      </p>
      <div className="legend">
        <table>
          <caption className="sr">{label}, figures</caption>
          <thead>
            <tr>
              <th scope="col">{cursor === null ? "Series" : moment(times[cursor], zone)}</th>
              <th scope="col" className="num">
                {cursor === null ? "Last" : "Here"}
              </th>
              <th scope="col" className="num">
                Average
              </th>
              <th scope="col" className="num">
                Peak
              </th>
            </tr>
          </thead>
          <tbody>
            {series.map((s, i) => {
              const f = summary(s.values);
              return (
                <tr key={s.name}>
                  <td>
                    <button
                      type="button"
                      aria-pressed={!hidden.has(s.name)}
                      title="Show or hide"
                      onClick={() =>
                        setHidden((h) => {
                          const n = new Set(h);
                          if (!n.delete(s.name)) n.add(s.name);
                          return n;
                        })
                      }
                    >
                      <span className="swatch" style={{ background: `var(--series-${(i % palette) + 1})` }} />
                      {s.name}
                    </button>
                  </td>
                  <td className="num">{reading(cursor === null ? f?.last : s.values[cursor], s.unit)}</td>
                  <td className="num">{reading(f?.average, s.unit)}</td>
                  <td className="num">{reading(f?.peak, s.unit)}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
      <p className="sr" aria-live="polite">
        {cursor === null ? "" : `${moment(times[cursor], zone)}: ${series.map((s) => `${s.name} ${reading(s.values[cursor], s.unit)}`).join(", ")}`}
      </p>
    </figure>
  );
}
