/* The lists of Rating: runs, late and unpriced usage, reprocessing, exports, months. */
import type { ReactNode } from "react";
import { url } from "../api/client";
import type { ExportList, LateList, MonthList, RunList, ScheduleList, UnpricedList } from "../api/types";
import { useApi, type Answer } from "../api/use";
import { fractionDigits } from "../format/decimal";
import { duration, monthName, span, zoneName } from "../format/time";
import { count } from "../format/units";
import { to, useParam } from "../router";
import { useShared } from "../settings";
import { Dec, Empty, Link, Loaded, Mark, Moment, Pager, Panel, Pick } from "../ui/parts";
import { JobMark } from "./rating";

const limit = 50;

/** List is a table of one page of an answer, with its pager. */
function List<T extends { total?: number }>({ title, note, of, rows, heads, empty, row, actions }: { title: string; note?: ReactNode; of: Answer<T>; rows: (data: T) => number; heads: readonly (string | readonly [string, "num"])[]; empty: ReactNode; row: (data: T) => ReactNode; actions?: ReactNode }) {
  const [offset, setOffset] = useParam("offset", "0");
  return (
    <Panel title={title} note={note} actions={actions} plain>
      <Loaded of={of} empty={(d) => (rows(d) === 0 ? empty : null)}>
        {(d) => (
          <>
            <div className="scroll" tabIndex={0} role="group" aria-label={title}>
              <table>
                <thead>
                  <tr>
                    {heads.map((h) => (
                      <th key={String(h)} scope="col" className={typeof h === "string" ? "" : "num"}>
                        {typeof h === "string" ? h : h[0]}
                      </th>
                    ))}
                  </tr>
                </thead>
                <tbody>{row(d)}</tbody>
              </table>
            </div>
            {d.total !== undefined ? <Pager total={d.total} limit={limit} offset={Number(offset) || 0} onOffset={(o) => setOffset(String(o))} what="rows" /> : null}
          </>
        )}
      </Loaded>
    </Panel>
  );
}

function usePage(): string {
  return useParam("offset", "0")[0];
}

export function RunsTab() {
  const [job, setJob] = useParam("job");
  const [state, setState] = useParam("state");
  const runs = useApi<RunList>(url("/rating/runs", { job, state, limit, offset: usePage() }), { every: 30_000, keep: true });
  return (
    <List
      title={job ? `Runs of ${job}` : "Runs of all jobs"}
      note="the newest first"
      of={runs}
      rows={(d) => d.runs.length}
      heads={["Job", "State", "Started", ["Took", "num"], "Counts", "Error and what to do"]}
      empty={<Empty title="No run">{job || state ? "matches this choice." : "The first job that runs is listed here."}</Empty>}
      actions={
        <div className="filters">
          {job ? (
            <button type="button" className="button" onClick={() => setJob("", { offset: null })}>
              {job} <span aria-hidden="true">{"\u00d7"}</span>
              <span className="sr">, show all jobs</span>
            </button>
          ) : null}
          <Pick
            label="State"
            value={state as "" | "running" | "done" | "failed" | "interrupted"}
            options={[
              ["", "All"],
              ["running", "Running"],
              ["done", "Done"],
              ["failed", "Failed"],
              ["interrupted", "Interrupted"],
            ]}
            onPick={(s) => setState(s, { offset: null })}
          />
        </div>
      }
      row={(d) =>
        d.runs.map((r) => (
          <tr key={r.run_id}>
            <th scope="row">
              <Link to={to(["rating", "runs"], { job: r.job, state })} label={`${r.job}, only this job`}>
                {r.job}
              </Link>
            </th>
            <td>
              <JobMark state={r.state} />
            </td>
            <td>
              <Moment at={r.started_at} age />
              <div className="quiet small">
                {r.host} {r.version}
              </div>
            </td>
            <td className="num">{r.duration_seconds === null ? "\u2013" : duration(r.duration_seconds)}</td>
            <td className="wide small">
              {Object.entries(r.counts)
                .filter(([, v]) => v !== "" && v !== "0")
                .map(([k, v]) => `${k.replaceAll("_", " ")} ${v}`)
                .join(", ")}
            </td>
            <td className="wide">
              {r.error}
              {r.hint ? <div className="quiet small">{r.hint}</div> : null}
            </td>
          </tr>
        ))
      }
    />
  );
}

export function LateTab() {
  const [project] = useParam("project");
  const { zone } = useShared();
  const late = useApi<LateList>(url("/rating/late", { project, limit, offset: usePage() }), { every: 60_000, keep: true });
  return (
    <List
      title="Late and lost usage"
      note="what arrived behind its commit, or is gone; with what it is worth"
      of={late}
      rows={(d) => d.late.length}
      heads={["Scope", "Period", "What", ["Rows rated", "num"], ["Rows now", "num"], ["Rated", "num"], ["Worth now", "num"], "Action", "Found"]}
      empty={<Empty title="No late usage">Nothing arrived behind its commit, and nothing was lost.</Empty>}
      row={(d) => {
        const digits = Math.max(2, ...d.late.flatMap((x) => [fractionDigits(x.committed_total), fractionDigits(x.found_total)]));
        return d.late.map((x) => (
          <tr key={`${x.scope} ${x.begin} ${x.kind} ${x.found_at}`}>
            <th scope="row" className="name">
              <Link to={to(["costs"], { project: x.scope, group: "metric" })}>{x.scope}</Link>
            </th>
            <td className="nowrap">{span(x.begin, x.end, zone)}</td>
            <td>
              <Mark kind={x.kind === "lost" ? "bad" : "warn"}>{x.kind}</Mark>
            </td>
            <td className="num">{count(x.committed_rows)}</td>
            <td className="num">{count(x.found_rows)}</td>
            <td className="num">
              <Dec value={x.committed_total} unit={x.currency} digits={digits} />
            </td>
            <td className="num">
              <Dec value={x.found_total} unit={x.currency} digits={digits} />
            </td>
            <td>{x.action}</td>
            <td>
              <Moment at={x.found_at} />
            </td>
          </tr>
        ));
      }}
    />
  );
}

export function UnpricedTab() {
  const [month] = useParam("month");
  const [project] = useParam("project");
  const { zone } = useShared();
  const list = useApi<UnpricedList>(url("/rating/unpriced", { month, project, limit, offset: usePage() }), { keep: true });
  return (
    <List
      title="Usage without a price"
      note={list.data ? `${span(list.data.begin, list.data.end, zone)} ${zoneName(zone)}` : undefined}
      of={list}
      rows={(d) => d.unpriced.length}
      heads={["Project", "Metric", "Bucket", "Reason", ["Quantity", "num"], ["Lines", "num"], "First", "Last"]}
      empty={<Empty title="Everything has a price">No usage of this month was left unpriced, rejected or skipped.</Empty>}
      row={(d) =>
        d.unpriced.map((x, i) => (
          <tr key={i}>
            <th scope="row" className="name">
              {x.project_name || x.project}
            </th>
            <td>
              <Link to={to(["costs", "lines"], { month: d.month, project: x.project, metric: x.metric, bucket: x.bucket })}>{x.metric}</Link>
            </td>
            <td>
              <Mark kind={x.bucket === "skipped" ? "" : "warn"}>{x.bucket}</Mark>
            </td>
            <td className="wide">{x.reason}</td>
            <td className="num">
              <Dec value={x.qty} unit={x.unit} least={0} />
            </td>
            <td className="num">{count(x.lines)}</td>
            <td>
              <Moment at={x.first} />
            </td>
            <td>
              <Moment at={x.last} />
            </td>
          </tr>
        ))
      }
    />
  );
}

export function SchedulesTab() {
  const { zone } = useShared();
  const list = useApi<ScheduleList>(url("/rating/schedules", { limit, offset: usePage() }), { every: 60_000, keep: true });
  return (
    <List
      title="Requests to rate again"
      note="the newest first"
      of={list}
      rows={(d) => d.schedules.length}
      heads={["Periods", "Scopes", "State", "Done until", "Reason", "By", "Created"]}
      empty={
        <Empty title="No request">
          Rating periods again is asked for with <code>ratebatch reprocess</code>.
        </Empty>
      }
      row={(d) =>
        d.schedules.map((x) => (
          <tr key={x.id}>
            <th scope="row" className="nowrap">
              {span(x.begin, x.end, zone)}
            </th>
            <td className="name">{x.scopes && x.scopes.length > 0 ? x.scopes.join(", ") : "all"}</td>
            <td>
              <JobMark state={x.state} />
              {x.waiting ? <div className="quiet small">waits: {x.waiting}</div> : null}
              {x.error ? <div className="small">{x.error}</div> : null}
            </td>
            <td>
              <Moment at={x.done_until} />
            </td>
            <td className="wide">{x.reason}</td>
            <td>{x.author}</td>
            <td>
              <Moment at={x.created_at} />
            </td>
          </tr>
        ))
      }
    />
  );
}

export function ExportsTab() {
  const { zone } = useShared();
  const list = useApi<ExportList>(url("/rating/exports", { limit, offset: usePage() }), { every: 60_000, keep: true });
  return (
    <List
      title="Deliveries"
      note="the newest first; a delivery exists when its manifest does"
      of={list}
      rows={(d) => d.exports.length}
      heads={["Dataset", "Window", ["Files", "num"], ["Rows", "num"], ["Total", "num"], "Manifest", "Exported"]}
      empty={
        <Empty title="Nothing exported">
          Files for finance come from <code>ratebatch export</code>.
        </Empty>
      }
      row={(d) =>
        d.exports.map((x) => (
          <tr key={`${x.delivery} ${x.exported_at}`}>
            <th scope="row" className="name">
              {x.dataset}
              <div className="quiet small">
                {x.location} {"\u00b7"} {x.mechanism}
              </div>
            </th>
            <td className="nowrap">{x.month ? monthName(x.month) : span(x.begin, x.end, zone)}</td>
            <td className="num">{count(x.files)}</td>
            <td className="num">{count(x.rows)}</td>
            <td className="num">
              {x.totals.map((t) => (
                <div key={t.currency}>
                  <Dec value={t.amount} unit={t.currency} />
                </div>
              ))}
            </td>
            <td className="mono small" title={x.manifest_sha256}>
              {x.manifest_sha256.slice(0, 12)}
            </td>
            <td>
              <Moment at={x.exported_at} />
            </td>
          </tr>
        ))
      }
    />
  );
}

export function MonthsTab() {
  const list = useApi<MonthList & { total?: number }>(url("/rating/months"), { every: 60_000, keep: true });
  return (
    <List
      title="Months"
      note="a closed month’s bill does not change; corrections go to an open one"
      of={list}
      rows={(d) => d.months.length}
      heads={["Month", "State", "Closed", ["Periods", "num"], ["Lines", "num"], ["Total", "num"], ["Corrections", "num"]]}
      empty={<Empty title="No month has lines yet" />}
      row={(d) =>
        d.months.map((x) => (
          <tr key={x.month}>
            <th scope="row">
              <Link to={to(["costs"], { month: x.month })}>{monthName(x.month)}</Link>
            </th>
            <td>
              <Mark kind={x.state === "closed" ? "good" : ""}>{x.state}</Mark>
            </td>
            <td>
              <Moment at={x.closed_at} />
              {x.reason || x.author ? (
                <div className="quiet small">
                  {x.reason} {x.author ? `(${x.author})` : ""}
                </div>
              ) : null}
            </td>
            <td className="num">{count(x.periods)}</td>
            <td className="num">{count(x.lines)}</td>
            <td className="num">
              {x.totals.map((t) => (
                <div key={t.currency}>
                  <Dec value={t.amount} unit={t.currency} />
                </div>
              ))}
            </td>
            <td className="num">
              {x.corrections.length === 0
                ? "\u2013"
                : x.corrections.map((t) => (
                    <div key={t.currency}>
                      <Dec value={t.amount} unit={t.currency} plus />
                    </div>
                  ))}
            </td>
          </tr>
        ))
      }
    />
  );
}
