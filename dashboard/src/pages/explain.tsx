import { path, url } from "../api/client";
import type { Explained } from "../api/types";
import { useApi } from "../api/use";
import { compare } from "../format/decimal";
import { dateIn, span, zoneName } from "../format/time";
import { to, useRoute } from "../router";
import { useShared } from "../settings";
import { Dec, Empty, Fact, Head, Link, Loaded, Mark, Panel, Tile } from "../ui/parts";

/** same says whether the plan in force gives what was rated: amount and currency. */
export function same(e: Pick<Explained, "price" | "currency" | "price_by_the_plan" | "currency_by_the_plan">): boolean {
  return e.currency === e.currency_by_the_plan && compare(e.price, e.price_by_the_plan) === 0;
}

/** One line, back to its samples: as `ratebatch explain`. */
export function ExplainPage({ line }: { line: string }) {
  const { query } = useRoute();
  const { zone, session } = useShared();
  const project = query.get("project") ?? "";
  const begin = query.get("begin") ?? "";
  const x = useApi<Explained>(project && begin ? url(path`/lines/${line}/explain`, { project, begin }) : null);
  if (!project || !begin) {
    return <Empty title="This address names no line">A line is found by its id, project and begin; open it from a list of lines.</Empty>;
  }
  const d = x.data;
  return (
    <>
      <Head
        kicker={<Link to={to(["costs", "lines"], { day: dateIn(begin, session?.billing_timezone ?? "UTC"), project, metric: d?.metric })}>Lines</Link>}
        title={d ? `How this price came about` : "A line"}
        facts={
          d ? (
            <>
              <Fact name="Metric">{d.metric}</Fact>
              <Fact name="Resource">
                <span className="mono">{d.resource || "whole scope"}</span>
              </Fact>
              <Fact name="Project">
                <Link to={to(["costs"], { project: d.scope, group: "metric" })}>{d.scope}</Link>
              </Fact>
              <Fact name="Period">
                {span(d.begin, d.end, zone)} {zoneName(zone)}
              </Fact>
              <Fact name="Revision">{d.revision}</Fact>
              <Fact name="Line">
                <span className="mono">{d.line_id}</span>
              </Fact>
            </>
          ) : null
        }
      />
      <Loaded of={x}>
        {(e) => (
          <>
            <div className="tiles">
              <Tile name="Quantity" value={<Dec value={e.qty} unit={e.unit} least={0} />} />
              <Tile
                name="Price"
                value={<Dec value={e.price} unit={e.currency} />}
                note={e.bucket ? <Mark kind="warn">{`${e.bucket}: ${e.rule}`}</Mark> : same(e) ? "the plan in force gives the same" : <Mark kind="warn">the plan in force gives another</Mark>}
              />
              {same(e) ? null : <Tile name="By the plan in force" value={<Dec value={e.price_by_the_plan} unit={e.currency_by_the_plan} />} />}
            </div>
            <div className="grid">
              <Panel title="Calculation">
                {e.arithmetic.length === 0 ? <p className="quiet">No rule counted.</p> : (
                  <ol className="steps mono">
                    {e.arithmetic.map((s, i) => (
                      <li key={i}>{s}</li>
                    ))}
                  </ol>
                )}
              </Panel>
              <Panel title="Rules">
                <h3>Counted</h3>
                {e.rules_that_counted.length === 0 ? <p className="quiet">None</p> : <ul className="steps">{e.rules_that_counted.map((r, i) => <li key={i}>{r}</li>)}</ul>}
                {e.rules_that_did_not.length > 0 ? (
                  <>
                    <h3>Did not</h3>
                    <ul className="steps quiet">{e.rules_that_did_not.map((r, i) => <li key={i}>{r}</li>)}</ul>
                  </>
                ) : null}
              </Panel>
            </div>
            {Object.keys(e.attributes ?? {}).length > 0 ? (
              <Panel title="Attributes in force">
                <dl className="facts">
                  {Object.entries(e.attributes ?? {}).map(([k, v]) => (
                    <Fact key={k} name={k}>
                      {v}
                    </Fact>
                  ))}
                </dl>
              </Panel>
            ) : null}
            <Records title="Tier rows" none="This metric does not come from a tier, or its rows are past their retention." rows={e.tier_rows} />
            <Records title="Samples" none="Raw samples are kept for hours; these are gone." rows={e.samples} />
          </>
        )}
      </Loaded>
    </>
  );
}

function Records({ title, rows, none }: { title: string; rows: Explained["tier_rows"]; none: string }) {
  const first = rows?.[0];
  return (
    <Panel title={title} plain>
      {!rows || !first ? (
        <Empty title="None">{none}</Empty>
      ) : (
        <div className="scroll" tabIndex={0} role="group" aria-label={title}>
          <table>
            <thead>
              <tr>
                {first.columns.map((c) => (
                  <th key={c} scope="col" className={numeric(rows, first.columns.indexOf(c)) ? "num" : ""}>
                    {c}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {rows.map((r, i) => (
                <tr key={i}>
                  {r.values.map((v, j) => (
                    <td key={j} className={numeric(rows, j) ? "num" : "nowrap"}>
                      {v}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Panel>
  );
}

function numeric(rows: NonNullable<Explained["tier_rows"]>, column: number): boolean {
  return rows.every((r) => /^-?\d+(\.\d+)?(e[+-]?\d+)?$/.test(r.values[column] ?? ""));
}
