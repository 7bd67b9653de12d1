import { url } from "../api/client";
import type { TopBy, TopList } from "../api/types";
import { useApi } from "../api/use";
import { fractionDigits, greatest } from "../format/decimal";
import { span, zoneName } from "../format/time";
import { reading } from "../format/units";
import { to, useParam } from "../router";
import { useShared } from "../settings";
import { Bar, Dec, DecimalBar, Empty, Head, Link, Loaded, Panel, Pick } from "../ui/parts";

const kinds: readonly (readonly [TopBy, string])[] = [
  ["cpu", "CPU"],
  ["memory", "Memory"],
  ["network", "Network"],
  ["disk", "Disk"],
  ["price", "Price"],
];
const heads: Record<TopBy, string> = { cpu: "CPU, average", memory: "Memory, average", network: "Received and sent", disk: "Read and written", price: "Price" };

export function TopPage() {
  const [picked, setBy] = useParam("by", "cpu");
  const [end] = useParam("end");
  const by = (kinds.some(([k]) => k === picked) ? picked : "cpu") as TopBy;
  const top = useApi<TopList>(url("/top", { by, limit: 10, end }), { every: 60_000 });
  const { zone } = useShared();
  return (
    <>
      <Head kicker="Top usage" title="Top 10 instances" actions={<Pick label="By" value={by} options={kinds} onPick={(k) => setBy(k)} />} />
      <Panel title={heads[by]} note={top.data ? `24 hours: ${span(top.data.begin, top.data.end, zone)} ${zoneName(zone)}` : "24 hours"} plain>
        <Loaded
          of={top}
          empty={(t) =>
            t.items.length === 0 ? (
              <Empty title="Nothing in the last 24 hours">{by === "price" ? "No period of it is rated yet; Rating says what waits." : "No agent sent a sample."}</Empty>
            ) : null
          }
        >
          {(t) => (
            <>
              <TopTable list={t} />
              {(t.others ?? []).map((m) => (
                <p className="body quiet" key={m.currency}>
                  <Dec value={m.amount} unit={m.currency} /> more is of no known instance.
                </p>
              ))}
            </>
          )}
        </Loaded>
      </Panel>
    </>
  );
}

export function TopTable({ list }: { list: TopList }) {
  const most = Math.max(0, ...list.items.map((x) => x.value ?? 0));
  const prices = list.items.map((x) => x.price ?? "0");
  const dearest = greatest(prices);
  const digits = Math.max(2, ...prices.map(fractionDigits));
  return (
    <div className="scroll" tabIndex={0} role="group" aria-label={heads[list.by]}>
      <table>
        <thead>
          <tr>
            <th scope="col" className="num">
              #
            </th>
            <th scope="col">Instance</th>
            <th scope="col">Project</th>
            <th scope="col">Flavor</th>
            <th scope="col" className="num">
              {heads[list.by]}
            </th>
            <th scope="col" className="barcell">
              <span className="sr">Compared with the first</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {list.items.map((x) => (
            <tr key={`${x.rank} ${x.instance.id} ${x.unit}`}>
              <td className="num quiet">{x.rank}</td>
              <th scope="row" className="name">
                <Link to={to(["instances", x.instance.id], { range: "24h" })}>{x.instance.name || x.instance.id}</Link>
              </th>
              <td className="name">
                <Link to={to(["costs"], { project: x.instance.project_id, group: "metric" })}>{x.instance.project_name || x.instance.project_id}</Link>
              </td>
              <td>{x.instance.flavor_name}</td>
              <td className="num">{x.price !== undefined ? <Dec value={x.price} unit={x.unit} digits={digits} /> : reading(x.value, x.unit)}</td>
              <td className="barcell">{x.price !== undefined ? <DecimalBar value={x.price} of={dearest} /> : <Bar thousandths={most > 0 ? Math.round(((x.value ?? 0) / most) * 1000) : 0} />}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
