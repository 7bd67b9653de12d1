import { path, url } from "../api/client";
import type { InstanceCosts, InstanceDetail, SeriesAnswer, TopList } from "../api/types";
import { useApi } from "../api/use";
import { instancePanels, SeriesPanels } from "../charts/panels";
import { fractionDigits } from "../format/decimal";
import { span } from "../format/time";
import { plural } from "../format/units";
import { to } from "../router";
import { useShared } from "../settings";
import { Columns } from "../ui/columns";
import { Dec, Empty, Fact, Head, Link, Loaded, Moment, Panel } from "../ui/parts";
import { RangePick, refreshOf, useWindow, type Window } from "../ui/range";
import { TopTable } from "./top";

/** Where one starts without an instance in mind: those that are busiest now. */
export function InstancesPage() {
  const top = useApi<TopList>(url("/top", { by: "cpu", limit: 20 }), { every: 60_000 });
  return (
    <>
      <Head kicker="Instances" title="Find an instance" />
      <p className="quiet">
        Search by name or id above (press <kbd>/</kbd>), or open one of the busiest of the last 24 hours.
      </p>
      <Panel title="Busiest by CPU" plain>
        <Loaded of={top} empty={(t) => (t.items.length === 0 ? <Empty title="No usage yet">Once agents send samples, their instances are listed here.</Empty> : null)}>
          {(t) => <TopTable list={t} />}
        </Loaded>
      </Panel>
    </>
  );
}

/** One instance: what it used, and what that costs beside it. */
export function InstancePage({ id }: { id: string }) {
  const [w] = useWindow();
  const detail = useApi<InstanceDetail>(url(path`/instances/${id}`), { every: refreshOf(w) });
  const series = useApi<SeriesAnswer>(url(path`/instances/${id}/series`, { range: w.range, end: w.end }), { every: refreshOf(w), keep: true });
  const i = detail.data?.instance;
  const keep = { range: w.range === "6h" ? null : w.range, end: w.end };
  if (detail.error?.status === 404) {
    return (
      <>
        <Head kicker="Instance" title={id} />
        <Panel title="Not found">
          <Empty title="No instance with this id is known">It never sent a sample, or your token does not see its project.</Empty>
        </Panel>
      </>
    );
  }
  return (
    <>
      <Head
        kicker={<Link to="/instances">Instances</Link>}
        title={i ? i.name || i.id : id}
        facts={
          i ? (
            <>
              <Fact name="Project">
                <Link to={to(["costs"], { project: i.project_id, group: "metric" })}>{i.project_name || i.project_id}</Link>
              </Fact>
              <Fact name="Flavor">
                {i.flavor_name || "\u2013"}, {plural("vCPU", i.vcpus)}
              </Fact>
              {i.host ? (
                <Fact name="Host">
                  <Link to={to(["nodes"], { region: i.region, host: i.host, ...keep })}>{i.host}</Link>
                </Fact>
              ) : null}
              <Fact name="Region">{i.region}</Fact>
              <Fact name="Last seen">
                <Moment at={i.last_seen} age />
              </Fact>
              <Fact name="Id">
                <span className="mono">{i.id}</span>
              </Fact>
            </>
          ) : null
        }
        actions={<RangePick shown={series.data} />}
      />
      <div className="beside">
        <div className="grid">
          <SeriesPanels of={series} wanted={instancePanels} group={`instance-${id}`} />
        </div>
        <div className="stack">
          <Costs id={id} window={w} />
          <Loaded of={detail} low>
            {(d) => (d.history.length > 1 ? <History detail={d} /> : null)}
          </Loaded>
        </div>
      </div>
    </>
  );
}

/**
 * linesOf are the addresses of the lines behind a figure, by the part of the
 * window they are of. Where the figure adds up several projects' lines, so does
 * the list.
 */
export function linesOf(c: Pick<InstanceCosts, "parts" | "projects">, instance: string, metric: string): { begin: string; address: string }[] {
  const project = c.projects.length === 1 ? c.projects[0] : null;
  return c.parts.map((p) => ({ begin: p.begin, address: to(["costs", "lines"], { begin: p.begin, end: p.end, instance, project, metric }) }));
}

function Costs({ id, window: w }: { id: string; window: Window }) {
  const { zone } = useShared();
  const costs = useApi<InstanceCosts>(url(path`/instances/${id}/costs`, { range: w.range, end: w.end }), { every: refreshOf(w) });
  return (
    <Panel
      title="Costs"
      note={
        costs.data ? (
          <>
            {span(costs.data.begin, costs.data.end, zone)}; rated until <Moment at={costs.data.rated_until} />
          </>
        ) : null
      }
      plain
    >
      <Loaded of={costs} empty={(c) => (c.metrics.length === 0 ? <Empty title="Nothing rated yet">in this range. Periods are rated a while after they end; <Link to="/rating">Rating</Link> says what waits.</Empty> : null)}>
        {(c) => {
          const digits = Math.max(2, ...c.metrics.map((m) => fractionDigits(m.price)));
          return (
            <>
              <div className="body">
                {c.totals.map((t) => (
                  <p className="value" key={t.currency}>
                    <Dec value={t.amount} unit={t.currency} />
                  </p>
                ))}
                {c.totals.map((t) => (
                  <Columns key={t.currency} label={`Costs over time in ${t.currency}`} low unit={t.currency} items={c.times.filter((x) => x.currency === t.currency).map((x) => ({ key: x.begin, name: x.begin, moment: true, value: x.price }))} />
                ))}
              </div>
              <div className="scroll" tabIndex={0} role="group" aria-label="Costs per metric">
                <table>
                  <thead>
                    <tr>
                      <th scope="col">Metric</th>
                      <th scope="col" className="num">
                        Price, quantity
                      </th>
                    </tr>
                  </thead>
                  <tbody>
                    {c.metrics.map((m) => (
                      <tr key={`${m.metric} ${m.unit} ${m.currency}`}>
                        <th scope="row">
                          <Lines metric={m.metric} of={linesOf(c, id, m.metric)} />
                        </th>
                        <td className="num">
                          <Dec value={m.price} unit={m.currency} digits={digits} />
                          <div className="quiet small">
                            <Dec value={m.qty} unit={m.unit} least={0} />
                          </div>
                        </td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              </div>
            </>
          );
        }}
      </Loaded>
    </Panel>
  );
}

/** Lines links a metric to its lines; a closed month's are a list of their own. */
function Lines({ metric, of }: { metric: string; of: { begin: string; address: string }[] }) {
  if (of.length === 1) return <Link to={of[0]!.address}>{metric}</Link>;
  return (
    <>
      {metric}
      {of.map((x) => (
        <div className="small" key={x.begin}>
          <Link to={x.address}>
            Lines from <Moment at={x.begin} />
          </Link>
        </div>
      ))}
    </>
  );
}

function History({ detail }: { detail: InstanceDetail }) {
  return (
    <Panel title="What it was" plain>
      <table>
        <thead>
          <tr>
            <th scope="col">Since</th>
            <th scope="col">As</th>
          </tr>
        </thead>
        <tbody>
          {detail.history.map((h) => (
            <tr key={`${h.first_seen} ${h.project_id} ${h.flavor_name}`}>
              <td>
                <Moment at={h.first_seen} />
              </td>
              <td className="name">
                {h.flavor_name || "\u2013"}, {plural("vCPU", h.vcpus)}
                <div className="quiet small">{h.project_name || h.project_id}</div>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Panel>
  );
}

