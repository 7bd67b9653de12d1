import { path, url } from "../api/client";
import type { NodeInstanceList, NodeList, SeriesAnswer } from "../api/types";
import { useApi } from "../api/use";
import { nodePanels, SeriesPanels } from "../charts/panels";
import { bytes, plural, reading } from "../format/units";
import { to, useParam } from "../router";
import { Empty, Fact, Head, Link, Loaded, Mark, Moment, Pager, Panel, Pick } from "../ui/parts";
import { RangePick, refreshOf, useWindow } from "../ui/range";

const limit = 50;

export function NodesPage() {
  const [offset, setOffset] = useParam("offset", "0");
  const nodes = useApi<NodeList>(url("/nodes", { limit, offset }), { every: 60_000, keep: true });
  return (
    <>
      <Head kicker="Nodes" title="Compute nodes" facts={nodes.data ? <Fact name="Known">{plural("host", nodes.data.total)}</Fact> : null} />
      <Panel title="Hosts" note="whose agents sent samples" plain>
        <Loaded of={nodes} empty={(n) => (n.total === 0 ? <Empty title="No host yet">Hosts appear with the first sample of their agent.</Empty> : null)}>
          {(n) => (
            <>
              <div className="scroll" tabIndex={0} role="group" aria-label="Hosts">
                <table>
                  <thead>
                    <tr>
                      <th scope="col">Host</th>
                      <th scope="col">Region</th>
                      <th scope="col">State</th>
                      <th scope="col">First sample</th>
                      <th scope="col">Last sample</th>
                    </tr>
                  </thead>
                  <tbody>
                    {n.nodes.map((x) => (
                      <tr key={`${x.region}/${x.host}`}>
                        <th scope="row" className="name">
                          <Link to={to(["nodes"], { region: x.region, host: x.host })}>{x.host}</Link>
                        </th>
                        <td>{x.region}</td>
                        <td>{x.silent ? <Mark kind="warn">silent</Mark> : <Mark kind="good">sending</Mark>}</td>
                        <td>
                          <Moment at={x.first_sample} />
                        </td>
                        <td>
                          <Moment at={x.last_sample} age />
                        </td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              </div>
              <Pager total={n.total} limit={limit} offset={Number(offset) || 0} onOffset={(o) => setOffset(String(o))} what="hosts" />
            </>
          )}
        </Loaded>
      </Panel>
    </>
  );
}

const orders = [
  ["cpu", "CPU"],
  ["memory", "Memory"],
  ["network", "Network"],
  ["disk", "Disk"],
  ["name", "Name"],
] as const;

/** One host: the traffic of all its instances together, and which those are. */
export function NodePage({ region, host }: { region: string; host: string }) {
  const [w] = useWindow();
  const [order, setOrder] = useParam("order", "cpu");
  const [offset, setOffset] = useParam("offset", "0");
  const every = refreshOf(w);
  const series = useApi<SeriesAnswer>(url(path`/nodes/${region}/${host}/series`, { range: w.range, end: w.end }), { every, keep: true });
  const list = useApi<NodeInstanceList>(url(path`/nodes/${region}/${host}/instances`, { range: w.range, end: w.end, order, limit, offset }), { every, keep: true });
  const keep = { range: w.range === "6h" ? null : w.range, end: w.end };
  return (
    <>
      <Head
        kicker={<Link to="/nodes">Nodes</Link>}
        title={host}
        facts={
          <>
            <Fact name="Region">{region}</Fact>
            {list.data ? <Fact name="Instances">{list.data.total}</Fact> : null}
          </>
        }
        actions={<RangePick shown={series.data} />}
      />
      <div className="grid">
        <SeriesPanels of={series} wanted={nodePanels} group={`node-${region}-${host}`} />
      </div>
      <Panel title="Instances" note="on this host in the range" plain actions={<Pick label="Order" value={order as (typeof orders)[number][0]} options={orders} onPick={(o) => setOrder(o, { offset: null })} />}>
        <Loaded of={list} empty={(l) => (l.total === 0 ? <Empty title="No instance">was seen on this host in the range.</Empty> : null)}>
          {(l) => (
            <>
              <div className="scroll" tabIndex={0} role="group" aria-label="Instances of the host">
                <table>
                  <thead>
                    <tr>
                      <th scope="col">Instance</th>
                      <th scope="col">Project</th>
                      <th scope="col">Flavor</th>
                      <th scope="col" className="num">
                        CPU
                      </th>
                      <th scope="col" className="num">
                        Memory
                      </th>
                      <th scope="col" className="num">
                        Network
                      </th>
                      <th scope="col" className="num">
                        Disk
                      </th>
                    </tr>
                  </thead>
                  <tbody>
                    {l.instances.map((x) => (
                      <tr key={x.instance.id}>
                        <th scope="row" className="name">
                          <Link to={to(["instances", x.instance.id], keep)}>{x.instance.name || x.instance.id}</Link>
                        </th>
                        <td className="name">{x.instance.project_name || x.instance.project_id}</td>
                        <td>{x.instance.flavor_name}</td>
                        <td className="num">{reading(x.cpu_percent, "percent")}</td>
                        <td className="num">{reading(x.memory_bytes, "bytes")}</td>
                        <td className="num">{bytes(x.network_bytes)}</td>
                        <td className="num">{bytes(x.disk_bytes)}</td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              </div>
              <Pager total={l.total} limit={limit} offset={Number(offset) || 0} onOffset={(o) => setOffset(String(o))} what="instances" />
            </>
          )}
        </Loaded>
      </Panel>
    </>
  );
}
