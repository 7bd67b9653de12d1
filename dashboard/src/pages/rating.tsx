/* How rating stands: what an operator asks first thing in the morning. */
import { url } from "../api/client";
import type { RatingStatus } from "../api/types";
import { useApi } from "../api/use";
import { fractionDigits } from "../format/decimal";
import { duration, isMoment, moment } from "../format/time";
import { count, plural } from "../format/units";
import { to } from "../router";
import { useShared } from "../settings";
import { Dec, Empty, Head, Link, Loaded, Mark, Moment, Panel, Tile } from "../ui/parts";
import { behindFirst } from "./behind";
import { ExportsTab, LateTab, MonthsTab, RunsTab, SchedulesTab, UnpricedTab } from "./ratingtabs";

const tabs = [
  ["scopes", "Scopes"],
  ["runs", "Runs"],
  ["late", "Late usage"],
  ["unpriced", "Unpriced"],
  ["schedules", "Reprocessing"],
  ["exports", "Exports"],
  ["months", "Months"],
] as const;

/** These two tell of everybody's bills, so the server keeps them from a project's token. */
const forAll = new Set(["runs", "exports"]);

export function RatingPage({ tab }: { tab: string }) {
  const { session } = useShared();
  const shown = tabs.filter(([key]) => !session?.project || !forAll.has(key));
  return (
    <>
      <Head kicker="Rating" title={tabs.find(([k]) => k === tab)?.[1] ?? "Rating"} />
      <nav className="tabs" aria-label="Parts of rating">
        {shown.map(([key, name]) => (
          <Link key={key} to={key === "scopes" ? "/rating" : `/rating/${key}`} current={tab === key}>
            {name}
          </Link>
        ))}
      </nav>
      {tab === "scopes" ? (
        <Scopes />
      ) : tab === "runs" ? (
        <RunsTab />
      ) : tab === "late" ? (
        <LateTab />
      ) : tab === "unpriced" ? (
        <UnpricedTab />
      ) : tab === "schedules" ? (
        <SchedulesTab />
      ) : tab === "exports" ? (
        <ExportsTab />
      ) : tab === "months" ? (
        <MonthsTab />
      ) : (
        <Empty title="There is no such list" />
      )}
    </>
  );
}

/* What `ratebatch status` prints and openapi.yaml leaves open. */
interface Waits {
  region?: string;
  scopes: number;
  complete_until: string;
  reason: string;
}
interface Fails {
  scope: string;
  begin: string;
  error: string;
  failed_at: string;
}
interface Outdated {
  kind: string;
  version: number;
  from: string;
  to: string;
  periods: number;
}
interface Ingest {
  silent_hosts?: { region: string; host: string; last_sample: string }[] | null;
  losses?: { topic: string; partition: number; cause: string; found_at: string }[] | null;
  rejected_records?: number;
  late_samples?: number;
}
type States = Record<string, { active: boolean; name?: string }>;

function lag(until: string, now: Date): string {
  return isMoment(until) ? duration((now.getTime() - Date.parse(until)) / 1000) : "\u2013";
}

function Scopes() {
  const status = useApi<RatingStatus>(url("/rating/status"), { every: 60_000 });
  const { zone, session } = useShared();
  return (
    <Loaded of={status}>
      {(s) => {
        const waiting = (s.waiting ?? []) as unknown as Waits[];
        const failures = (s.failures ?? []) as unknown as Fails[];
        const outdated = (s.outdated ?? []) as unknown as Outdated[];
        const ingest = (s.ingest ?? {}) as Ingest;
        const states = ((s as { scope_states?: States }).scope_states ?? {}) as States;
        const { rows: scopes, behind } = behindFirst(s.scopes ?? [], states);
        const digits = Math.max(2, ...scopes.map((x) => fractionDigits(x.price)));
        const now = session ? new Date(Math.max(Date.parse(session.now), Date.now())) : new Date();
        const unpriced = scopes.reduce((n, x) => n + x.unpriced + x.rejected, 0);
        const silent = ingest.silent_hosts ?? [];
        const notes: [string, string][] = [
          ...(s.note ? [["bad", `rate would stop: ${s.note}`] as [string, string]] : []),
          ...(s.expired_periods ? [["bad", `${plural("due period", s.expired_periods)} older than the tier keeps: they cannot be rated any more`] as [string, string]] : []),
          ...failures.map((f): [string, string] => ["bad", `Scope ${f.scope} fails from ${moment(f.begin, zone)} on: ${f.error}`]),
          ...(ingest.losses ?? []).map((l): [string, string] => ["bad", `Records were lost in topic ${l.topic}, partition ${l.partition} (${l.cause}), found ${moment(l.found_at, zone)}`]),
          ...(s.warnings ?? []).map((w): [string, string] => ["warn", w]),
          ...outdated.map((o): [string, string] => ["warn", `${plural("period", o.periods)} from ${moment(o.from, zone)} on rated by another ${o.kind} than version ${o.version}, which is in force for them now`]),
          ...(ingest.rejected_records ? [["warn", `${plural("record", ingest.rejected_records)} did not decode lately; see the table rejected_records`] as [string, string]] : []),
          ...(ingest.late_samples ? [["warn", `${plural("sample", ingest.late_samples)} came too late for the tiers lately; see ratebatch rollup --include-late`] as [string, string]] : []),
        ];
        return (
          <>
            <div className="tiles">
              {s.due_periods === undefined ? null : <Tile name="Due periods" value={count(s.due_periods)} note={s.oldest_due ? <>oldest {s.oldest_due.slice(0, 10)}</> : "nothing waits for rate"} />}
              <Tile name="Furthest behind" value={behind ? lag(behind, now) : "\u2013"} note={behind ? <>rated until <Moment at={behind} /></> : scopes.length > 0 ? "no scope is rated any more" : "nothing is rated yet"} />
              <Tile name="Late findings" value={count(s.late_findings)} note={s.late_findings > 0 ? <Link to="/rating/late">what they are worth</Link> : "no usage arrived behind its commit"} />
              <Tile name="Without a price" value={count(unpriced)} note={unpriced > 0 ? <Link to="/rating/unpriced">which and why</Link> : "every line has a price"} />
              {s.ingest ? <Tile name="Silent hosts" value={count(silent.length)} note={silent[0] ? <Link to={to(["nodes"], { region: silent[0].region, host: silent[0].host })}>{silent[0].host}{silent.length > 1 ? " and others" : ""}</Link> : "all send samples"} /> : null}
            </div>
            {notes.map(([kind, text], i) => (
              <p key={i} className={`alert ${kind}`}>
                {text}
              </p>
            ))}
            {waiting.length > 0 ? (
              <Panel title="Waiting" note="periods that could be ready and are not" plain>
                <div className="scroll" tabIndex={0} role="group" aria-label="Waiting">
                  <table>
                    <thead>
                      <tr>
                        <th scope="col">Region</th>
                        <th scope="col" className="num">
                          Scopes
                        </th>
                        <th scope="col">Complete until</th>
                        <th scope="col">Why</th>
                      </tr>
                    </thead>
                    <tbody>
                      {waiting.map((w, i) => (
                        <tr key={i}>
                          <th scope="row">{w.region || "all"}</th>
                          <td className="num">{count(w.scopes)}</td>
                          <td>
                            <Moment at={w.complete_until} />
                          </td>
                          <td className="wide">{w.reason}</td>
                        </tr>
                      ))}
                    </tbody>
                  </table>
                </div>
              </Panel>
            ) : null}
            <Panel title="Scopes" note="those that are furthest behind first" plain>
              {scopes.length === 0 ? (
                <Empty title="Nothing is rated yet">
                  Once usage is there, <code>ratebatch rate</code> rates every period that is ready.
                </Empty>
              ) : (
                <div className="scroll" tabIndex={0} role="group" aria-label="Scopes">
                  <table>
                    <thead>
                      <tr>
                        <th scope="col">Scope</th>
                        <th scope="col">State</th>
                        <th scope="col">Rated until</th>
                        <th scope="col" className="num">
                          Lag
                        </th>
                        <th scope="col" className="num">
                          Periods
                        </th>
                        <th scope="col" className="num">
                          Price
                        </th>
                        <th scope="col" className="num">
                          Unpriced
                        </th>
                        <th scope="col" className="num">
                          Rejected
                        </th>
                      </tr>
                    </thead>
                    <tbody>
                      {scopes.map((x) => (
                        <tr key={`${x.scope} ${x.currency}`}>
                          <th scope="row" className="name">
                            <Link to={to(["costs"], { project: x.scope, group: "metric" })}>{states[x.scope]?.name || x.scope}</Link>
                          </th>
                          <td>{states[x.scope]?.active === false ? <Mark>disabled</Mark> : failures.some((f) => f.scope === x.scope) ? <Mark kind="bad">failing</Mark> : <Mark kind="good">active</Mark>}</td>
                          <td>
                            <Moment at={x.rated_until} />
                          </td>
                          <td className="num">{lag(x.rated_until, now)}</td>
                          <td className="num">{count(x.periods)}</td>
                          <td className="num">
                            <Dec value={x.price} unit={x.currency} digits={digits} />
                          </td>
                          <td className="num">{count(x.unpriced)}</td>
                          <td className="num">{count(x.rejected)}</td>
                        </tr>
                      ))}
                    </tbody>
                  </table>
                </div>
              )}
            </Panel>
            {(s.jobs ?? []).length > 0 ? (
              <Panel title="Jobs" note="the last run of each" plain>
                <div className="scroll" tabIndex={0} role="group" aria-label="Jobs">
                  <table>
                    <thead>
                      <tr>
                        <th scope="col">Job</th>
                        <th scope="col">State</th>
                        <th scope="col">Last start</th>
                        <th scope="col">Last success</th>
                        <th scope="col">Error</th>
                      </tr>
                    </thead>
                    <tbody>
                      {(s.jobs ?? []).map((j) => (
                        <tr key={j.job}>
                          <th scope="row">
                            <Link to={to(["rating", "runs"], { job: j.job })}>{j.job}</Link>
                          </th>
                          <td>
                            <JobMark state={j.state} />
                          </td>
                          <td>
                            <Moment at={j.last_start} age />
                          </td>
                          <td>
                            <Moment at={j.last_success} />
                          </td>
                          <td className="wide">
                            {j.error || ""}
                            {j.hint ? <div className="quiet small">{j.hint}</div> : null}
                          </td>
                        </tr>
                      ))}
                    </tbody>
                  </table>
                </div>
              </Panel>
            ) : null}
          </>
        );
      }}
    </Loaded>
  );
}

export function JobMark({ state }: { state: string }) {
  return <Mark kind={state === "done" ? "good" : state === "failed" ? "bad" : state === "interrupted" || state === "cancelled" ? "warn" : ""}>{state}</Mark>;
}
