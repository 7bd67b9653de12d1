import { useEffect, useState } from "react";
import { get, url } from "../api/client";
import type { Line, LineList } from "../api/types";
import { useApi } from "../api/use";
import { fractionDigits } from "../format/decimal";
import { monthName, span, zoneName } from "../format/time";
import { plural } from "../format/units";
import { to, useParam, useRoute } from "../router";
import { useShared } from "../settings";
import { Dec, Empty, Head, Link, Loaded, Mark, Moment, Panel, Pick } from "../ui/parts";

const keys = ["month", "day", "begin", "end", "project", "metric", "instance", "resource", "bucket"] as const;
const limit = 100;

/** The rated lines behind a figure; each opens to how it came about. */
export function LinesPage() {
  const { query } = useRoute();
  const { zone } = useShared();
  const [bucket, setBucket] = useParam("bucket");
  const filter = Object.fromEntries(keys.map((k) => [k, query.get(k)]));
  const address = url("/lines", { ...filter, limit });
  const first = useApi<LineList>(address);
  const [more, setMore] = useState<{ of: string; lines: Line[]; cursor: string | null; busy: boolean; error: string }>({ of: "", lines: [], cursor: null, busy: false, error: "" });
  useEffect(() => setMore({ of: address, lines: [], cursor: first.data?.next_cursor ?? null, busy: false, error: "" }), [address, first.data]);

  const next = () => {
    if (!more.cursor) return;
    setMore((m) => ({ ...m, busy: true, error: "" }));
    get<LineList>(url("/lines", { ...filter, limit, cursor: more.cursor })).then(
      (l) => setMore((m) => (m.of === address ? { ...m, lines: [...m.lines, ...l.lines], cursor: l.next_cursor, busy: false } : m)),
      (err: unknown) => setMore((m) => ({ ...m, busy: false, error: err instanceof Error ? err.message : String(err) })),
    );
  };
  const what = [filter.metric, filter.instance ? `instance ${filter.instance}` : null, filter.project].filter(Boolean).join(", ");
  const when = filter.day ?? (filter.month ? monthName(filter.month) : "");
  return (
    <>
      <Head
        kicker={<Link to={to(["costs"], { month: filter.month ?? filter.day?.slice(0, 7), project: filter.project })}>Costs</Link>}
        title={`Lines${when ? ` of ${when}` : ""}`}
        facts={what ? <div><dt>Of</dt><dd>{what}</dd></div> : null}
        actions={
          <Pick
            label="Which lines"
            value={bucket as "" | "lines" | "unpriced" | "rejected" | "skipped"}
            options={[
              ["", "All"],
              ["lines", "Priced"],
              ["unpriced", "Unpriced"],
              ["rejected", "Rejected"],
              ["skipped", "Skipped"],
            ]}
            onPick={(b) => setBucket(b)}
          />
        }
      />
      <Panel title="Lines" note={first.data ? `${span(first.data.begin, first.data.end, zone)} ${zoneName(zone)}` : undefined} plain>
        <Loaded of={first} empty={(l) => (l.lines.length === 0 ? <Empty title="No lines">match this question.</Empty> : null)}>
          {(l) => {
            const lines = more.of === address ? [...l.lines, ...more.lines] : l.lines;
            return (
              <>
                <LineTable lines={lines} />
                <div className="pager">
                  <span role="status">
                    {plural("line", lines.length)}
                    {more.cursor ? ", there are more" : ""}
                    {more.error ? `; ${more.error}` : ""}
                  </span>
                  {more.cursor ? (
                    <button type="button" className="button" disabled={more.busy} onClick={next}>
                      Show more
                    </button>
                  ) : null}
                </div>
              </>
            );
          }}
        </Loaded>
      </Panel>
    </>
  );
}

function LineTable({ lines }: { lines: readonly Line[] }) {
  const digits = Math.max(2, ...lines.map((x) => fractionDigits(x.price)));
  return (
    <div className="scroll" tabIndex={0} role="group" aria-label="Lines">
      <table>
        <thead>
          <tr>
            <th scope="col">Period</th>
            <th scope="col">Project</th>
            <th scope="col">Metric</th>
            <th scope="col">Resource</th>
            <th scope="col" className="num">
              Quantity
            </th>
            <th scope="col" className="num">
              Price
            </th>
            <th scope="col">Rule or reason</th>
          </tr>
        </thead>
        <tbody>
          {lines.map((x) => (
            <tr key={x.line_id}>
              <td>
                <Moment at={x.begin} />
              </td>
              <td className="name">{x.project}</td>
              <td>
                {x.metric}
                {x.bucket ? (
                  <>
                    {" "}
                    <Mark kind={x.bucket === "skipped" ? "" : "warn"}>{x.bucket}</Mark>
                  </>
                ) : null}
              </td>
              <th scope="row" className="name mono">
                <Link to={to(["costs", "lines", x.line_id], { project: x.project, begin: x.begin })} label={`${x.resource || "whole scope"}: explain this line`}>
                  {x.resource || "whole scope"}
                </Link>
              </th>
              <td className="num">
                <Dec value={x.qty} unit={x.unit} least={0} />
              </td>
              <td className="num">
                <Dec value={x.price} unit={x.currency} digits={digits} />
              </td>
              <td className="wide quiet small">{x.rule}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
