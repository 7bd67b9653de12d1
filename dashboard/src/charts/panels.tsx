/* What the series of an instance or a host become: panels of lines with names for people. */
import { useMemo } from "react";
import type { Panel as PanelData, SeriesAnswer } from "../api/types";
import type { Answer } from "../api/use";
import { zoneName } from "../format/time";
import { useShared } from "../settings";
import { Empty, Failure, Panel } from "../ui/parts";
import { tierNames } from "../ui/range";
import { LineChart, type Drawn } from "./line";

interface Wanted {
  key: string;
  title: string;
  panel: PanelData["panel"];
  metrics: Record<string, string>;
  mirrored?: string;
  note?: string;
}

/** The panels of an instance; those of a host are the last three. */
export const instancePanels: readonly Wanted[] = [
  { key: "cpu", title: "CPU", panel: "cpu", metrics: { cpu_max: "Highest", cpu_avg: "Average" }, note: "of all its vCPUs" },
  { key: "memory", title: "Memory", panel: "memory", metrics: { memory_actual: "Given", memory_rss: "Resident on the host", memory_usable: "Usable inside" } },
  { key: "network", title: "Network", panel: "network", metrics: { rx_bytes: "Received", tx_bytes: "Sent" }, mirrored: "tx_bytes", note: "sent is drawn downwards" },
  { key: "disk", title: "Disk throughput", panel: "disk", metrics: { read_bytes: "Read", write_bytes: "Written" }, mirrored: "write_bytes", note: "written is drawn downwards" },
  { key: "requests", title: "Disk requests", panel: "disk", metrics: { read_requests: "Reads", write_requests: "Writes" }, mirrored: "write_requests", note: "writes are drawn downwards" },
];
export const nodePanels = instancePanels.filter((p) => p.panel === "network" || p.panel === "disk");

/** drawn picks a wanted panel's series out of an answer; a port's or device's name is said where there are several. */
export function drawn(want: Wanted, answer: SeriesAnswer): { times: string[]; series: Drawn[] } | null {
  const p = answer.panels.find((x) => x.panel === want.panel);
  const all = p?.series.filter((s) => s.metric in want.metrics && s.values.some((v) => v !== null)) ?? [];
  if (!p || all.length === 0) return null;
  // What is listed last is drawn last, on top.
  const order = Object.keys(want.metrics);
  all.sort((a, b) => order.indexOf(a.metric) - order.indexOf(b.metric) || (a.resource < b.resource ? -1 : 1));
  const resources = new Set(all.map((s) => s.resource));
  // Ports are UUIDs: as many characters as tell them apart are enough on a legend.
  let short = 8;
  while (short < 36 && new Set([...resources].map((r) => r.slice(0, short))).size < resources.size) short++;
  const label = (r: string) => (r.length > 20 ? r.slice(0, short) : r);
  return {
    times: p.times,
    series: all.map((s) => ({
      name: s.resource === "" ? want.metrics[s.metric]! : `${want.metrics[s.metric]!} ${label(s.resource)}`,
      unit: s.unit,
      values: s.values,
      mirrored: s.metric === want.mirrored,
    })),
  };
}

function One({ want, answer, group }: { want: Wanted; answer: SeriesAnswer; group: string }) {
  const d = useMemo(() => drawn(want, answer), [want, answer]);
  if (!d) {
    return (
      <Empty title="Nothing was measured">
        in this range. {answer.tier === "raw" ? "Raw samples are kept for hours only; a longer range reads the tiers." : ""}
      </Empty>
    );
  }
  return <LineChart label={want.title} times={d.times} series={d.series} begin={answer.begin} end={answer.end} group={group} percent={want.panel === "cpu"} />;
}

export function SeriesPanels({ of, wanted, group }: { of: Answer<SeriesAnswer>; wanted: readonly Wanted[]; group: string }) {
  const { zone } = useShared();
  if (of.data === null && of.error) {
    return (
      <Panel title="Charts">
        <Failure error={of.error} again={of.again} />
      </Panel>
    );
  }
  return (
    <>
      {wanted.map((want) => (
        <Panel key={want.key} title={want.title} note={of.data ? `${tierNames[of.data.tier]}, ${zoneName(zone)}${want.note ? `; ${want.note}` : ""}` : want.note}>
          {of.data ? (
            <div className={of.old ? "old" : undefined} aria-busy={of.old}>
              <One want={want} answer={of.data} group={group} />
            </div>
          ) : (
            <div className="skeleton" role="status">
              <span className="sr">Loading</span>
            </div>
          )}
        </Panel>
      ))}
    </>
  );
}
