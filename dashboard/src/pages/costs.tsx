import { useState } from "react";
import { ApiError, download, url, type Query } from "../api/client";
import type { CostAnswer, CostRow, ProjectList } from "../api/types";
import { useApi } from "../api/use";
import { fractionDigits, greatest, sign } from "../format/decimal";
import { monthName, shiftMonth, span, zoneName } from "../format/time";
import { count, plural } from "../format/units";
import { to, useParam, useRoute } from "../router";
import { useShared } from "../settings";
import { Columns } from "../ui/columns";
import { Dec, DecimalBar, Difference, Empty, Head, Link, Loaded, Mark, Moment, Pager, Panel, Pick, Tile } from "../ui/parts";

type Group = "project" | "metric" | "day" | "month";
const groups: readonly (readonly [Group, string])[] = [
  ["project", "Project"],
  ["metric", "Metric"],
  ["day", "Day"],
  ["month", "Months"],
];
/** How many months the view by month looks back. */
const monthsBack = 12;
const limit = 50;

/** All days of a month: one without lines is an empty place, not a missing one. */
export function everyDay(month: string): string[] {
  if (!/^\d{4}-\d{2}$/.test(month)) return [];
  const [y, m] = month.split("-").map(Number) as [number, number];
  return Array.from({ length: new Date(Date.UTC(y, m, 0)).getUTCDate() }, (_, i) => `${month}-${String(i + 1).padStart(2, "0")}`);
}

export function CostsPage() {
  const { session, zone } = useShared();
  const { query } = useRoute();
  const [month, setMonth] = useParam("month");
  const [project, setProject] = useParam("project");
  const [metric, setMetric] = useParam("metric");
  const [compare, setCompare] = useParam("compare", "month");
  const [offset, setOffset] = useParam("offset", "0");
  const only = session?.project ?? null;
  const usual: Group = (project || only) && !metric ? "metric" : metric ? "day" : "project";
  const [picked, setGroup] = useParam("group", usual);
  const group = (groups.some(([g]) => g === picked) ? picked : usual) as Group;

  const filter: Query = { month, project, metric, compare };
  // Amounts of another question never stand under this one's title, so nothing is kept.
  const total = useApi<CostAnswer>(url("/costs", { ...filter }) + "&group=", { every: 120_000 });
  const days = useApi<CostAnswer>(url("/costs", { ...filter, group: "day", limit: 500, order: "group" }), { every: 120_000 });
  const projects = useApi<ProjectList>(url("/projects", { limit: 500 }));
  // Which month it is now the server says: where a month begins depends on the billing time zone.
  const last = session?.month ?? "";
  const shown = total.data?.month ?? (month || last);
  // By month: the year up to the month that is shown, since one month alone would be one row.
  const window: Query = group === "month" ? { month: shown, months: monthsBack, project, metric, compare: "none" } : filter;
  const rows = useApi<CostAnswer>(group === "month" && !shown ? null : url("/costs", { ...window, group, limit, offset, order: group === "day" || group === "month" ? "group" : "price" }), { every: 120_000 });
  const name = projects.data?.projects.find((p) => p.id === project)?.name;

  const here = (set: Record<string, string | null>) => to(["costs"], { ...Object.fromEntries(query), offset: null, ...set });
  return (
    <>
      <Head
        kicker={
          project || metric ? (
            <>
              <Link to={here({ project: null, metric: null, group: null })}>Costs</Link>
              {project && metric ? (
                <>
                  {" / "}
                  <Link to={here({ metric: null, group: null })}>{name || project}</Link>
                </>
              ) : null}
            </>
          ) : (
            "Costs"
          )
        }
        title={metric ? `${metric}${project ? ` of ${name || project}` : ""}` : project ? name || project : shown ? `Costs of ${monthName(shown)}` : "Costs"}
        actions={
          <>
            <button type="button" className="button" disabled={!shown} onClick={() => setMonth(shiftMonth(shown, -1), { offset: null })} aria-label="The month before">
              {"\u2190"}
            </button>
            <label>
              <span className="sr">Month</span>
              <input className="field" type="month" value={shown} max={last || undefined} onChange={(e) => setMonth(e.target.value, { offset: null })} />
            </label>
            <button type="button" className="button" disabled={!shown || shown >= last} onClick={() => setMonth(shiftMonth(shown, 1), { offset: null })} aria-label="The month after">
              {"\u2192"}
            </button>
            <Downloads month={shown} project={project || only || ""} />
          </>
        }
      />
      <Loaded of={total} low empty={(c) => (c.totals.length === 0 ? <Panel title="Nothing rated"><Empty title={`Nothing is rated in ${c.month ? monthName(c.month) : "this window"}`}>Periods are rated a while after they end. <Link to="/rating">Rating</Link> says what waits and why.</Empty></Panel> : null)}>
        {(c) => (
          <>
            <div className="tiles">
              {c.totals.map((t) => (
                <Tile
                  key={t.currency}
                  name={c.closed ? "Total, closed month" : "Total so far"}
                  value={<Dec value={t.price} unit={t.currency} />}
                  note={
                    <>
                      rated until <Moment at={c.rated_until} />
                    </>
                  }
                />
              ))}
              {c.totals.map((t) => (
                <Tile
                  key={t.currency}
                  name={compare === "to_date" ? "Same part of the month before" : "Month before"}
                  value={t.previous === null || sign(t.previous) === 0 ? "\u2013" : <Dec value={t.previous} unit={t.currency} />}
                  note={t.previous === null || sign(t.previous) === 0 ? "nothing was priced" : <Difference value={t.difference} percent={t.change_percent} />}
                />
              ))}
              {c.totals.map((t) => (
                <Tile
                  key={t.currency}
                  name="Rated lines"
                  value={count(t.lines)}
                  note={
                    t.unpriced > 0 ? (
                      <Link to={to(["rating", "unpriced"], { month: shown, project })}>{plural("line", t.unpriced)} without a price</Link>
                    ) : (
                      "every line has a price"
                    )
                  }
                />
              ))}
            </div>
          </>
        )}
      </Loaded>
      {days.data?.totals.map((t) => (
        <Panel
          key={t.currency}
          title={days.data!.totals.length > 1 ? `Days, ${t.currency}` : "Days"}
          note={`in ${session?.billing_timezone || "UTC"}${t.previous !== null && sign(t.previous) !== 0 ? "; grey is the same day of the month before" : ""}`}
          actions={
            <Pick
              label="Compare with"
              value={compare as "month" | "to_date"}
              options={[
                ["month", "Whole month before"],
                ["to_date", "Same part of it"],
              ]}
              onPick={(v) => setCompare(v)}
            />
          }
        >
          <Columns
            label={`Costs per day in ${t.currency}`}
            unit={t.currency}
            items={everyDay(shown).map((day) => {
              const r = days.data!.rows.find((x) => x.currency === t.currency && x.day === day);
              return { key: day, name: day, value: r?.price ?? "0", previous: r?.previous, address: r ? to(["costs", "lines"], { day, project, metric }) : undefined };
            })}
          />
        </Panel>
      ))}
      {total.data?.totals.length === 0 && !project && !metric && group !== "month" ? null : (
      <Panel
        title={`By ${group}`}
        note={rows.data ? `${span(rows.data.begin, rows.data.end, zone)} ${zoneName(zone)}` : undefined}
        plain
        actions={
          <div className="filters">
            {only === null ? (
              <label>
                <span className="sr">Project</span>
                <select className="field" value={project} onChange={(e) => setProject(e.target.value, { offset: null, group: null })}>
                  <option value="">All projects</option>
                  {project && !projects.data?.projects.some((p) => p.id === project) ? <option value={project}>{project}</option> : null}
                  {projects.data?.projects.map((p) => (
                    <option key={p.id} value={p.id}>
                      {p.name || p.id}
                    </option>
                  ))}
                </select>
              </label>
            ) : null}
            {metric ? (
              <button type="button" className="button" onClick={() => setMetric("", { offset: null, group: null })}>
                {metric} <span aria-hidden="true">{"\u00d7"}</span>
                <span className="sr">, show all metrics</span>
              </button>
            ) : null}
            <Pick label="Group by" value={group} options={groups} onPick={(g) => setGroup(g, { offset: null })} />
          </div>
        }
      >
        <Loaded of={rows} empty={(c) => (c.rows.length === 0 ? <Empty title="No lines">in this window.</Empty> : null)}>
          {(c) => (
            <>
              <CostTable answer={c} group={group} address={(r) => (group === "project" ? here({ project: r.project!, group: null }) : group === "metric" ? to(["costs", "lines"], { month: shown, project, metric: r.metric! }) : group === "month" ? here({ month: r.month!, group: null }) : to(["costs", "lines"], { day: r.day!, project, metric }))} />
              <Pager total={c.total} limit={limit} offset={Number(offset) || 0} onOffset={(o) => setOffset(String(o))} what="rows" />
            </>
          )}
        </Loaded>
      </Panel>
      )}
    </>
  );
}

function CostTable({ answer, group, address }: { answer: CostAnswer; group: Group; address: (r: CostRow) => string }) {
  const digits = Math.max(2, ...answer.rows.map((r) => fractionDigits(r.price)));
  const most = greatest(answer.rows.map((r) => r.price));
  // A month before without a single price would fill the column with the prices themselves.
  const compared = answer.totals.some((t) => t.previous !== null && sign(t.previous) !== 0);
  return (
    <div className="scroll" tabIndex={0} role="group" aria-label={`Costs by ${group}`}>
      <table>
        <thead>
          <tr>
            <th scope="col">{group[0]!.toUpperCase() + group.slice(1)}</th>
            {group === "metric" ? (
              <th scope="col" className="num">
                Quantity
              </th>
            ) : null}
            <th scope="col" className="num lesser">
              Lines
            </th>
            <th scope="col" className="num">
              Price
            </th>
            <th scope="col" className="barcell">
              <span className="sr">Compared with the dearest</span>
            </th>
            {compared ? (
              <th scope="col" className="num">
                Change
              </th>
            ) : null}
          </tr>
        </thead>
        <tbody>
          {answer.rows.map((r) => {
            const name = group === "project" ? r.project_name || r.project! : group === "metric" ? r.metric! : group === "month" ? monthName(r.month!) : r.day!;
            return (
              <tr key={`${name} ${r.project ?? ""} ${r.unit ?? ""} ${r.currency}`}>
                <th scope="row" className="name">
                  <Link to={address(r)}>{name}</Link>
                  {r.unpriced > 0 ? (
                    <>
                      {" "}
                      <Mark kind="warn">{count(r.unpriced)} unpriced</Mark>
                    </>
                  ) : null}
                </th>
                {group === "metric" ? <td className="num">{r.qty !== undefined ? <Dec value={r.qty} unit={r.unit} least={0} /> : null}</td> : null}
                <td className="num lesser">{count(r.lines)}</td>
                <td className="num">
                  <Dec value={r.price} unit={r.currency} digits={digits} />
                </td>
                <td className="barcell">
                  <DecimalBar value={r.price} of={most} />
                </td>
                {compared ? (
                  <td className="num">
                    <Difference value={r.difference} percent={r.change_percent} />
                  </td>
                ) : null}
              </tr>
            );
          })}
        </tbody>
        <tfoot>
          {answer.totals.map((t) => (
            <tr key={t.currency}>
              <th scope="row">All rows</th>
              {group === "metric" ? <td /> : null}
              <td className="num lesser">{count(t.lines)}</td>
              <td className="num">
                <Dec value={t.price} unit={t.currency} digits={digits} />
              </td>
              <td className="barcell" />
              {compared ? (
                <td className="num">
                  <Difference value={t.difference} percent={t.change_percent} />
                </td>
              ) : null}
            </tr>
          ))}
        </tfoot>
      </table>
    </div>
  );
}

function Downloads({ month, project }: { month: string; project: string }) {
  const [error, setError] = useState<ApiError | null>(null);
  const get = (format: "csv" | "parquet") => {
    setError(null);
    download(url("/costs/download", { format, month, project }), `ratebatch-${month}${project ? `-${project}` : ""}.${format}`).catch((err: unknown) => {
      setError(err instanceof ApiError ? err : new ApiError(0, "internal", "The file could not be saved."));
    });
  };
  return (
    <>
      <button type="button" className="button" disabled={!month} onClick={() => get("csv")}>
        CSV
      </button>
      <button type="button" className="button" disabled={!month} onClick={() => get("parquet")}>
        Parquet
      </button>
      {error ? (
        <span role="alert" className="mark bad">
          {error.message}
        </span>
      ) : null}
    </>
  );
}
