import { path, url } from "../api/client";
import type { PlanDetail, PlanDiff, PlanList, Rule } from "../api/types";
import { useApi } from "../api/use";
import { fractionDigits } from "../format/decimal";
import { go, to, useParam } from "../router";
import { Dec, Empty, Fact, Head, Link, Loaded, Mark, Moment, Panel } from "../ui/parts";
import { QuoteForm } from "./quote";

const tabs = [
  ["rules", "Rules"],
  ["changes", "What changed"],
  ["file", "File"],
  ["quote", "Quote"],
] as const;

export function PlanPage({ version, tab }: { version: string; tab: string }) {
  const list = useApi<PlanList>(url("/plans"), { every: 120_000 });
  const detail = useApi<PlanDetail>(list.data && list.data.plans.length > 0 ? url(path`/plans/${version}`) : null, { every: 120_000 });
  const p = detail.data?.plan;
  if (list.data?.plans.length === 0) {
    return (
      <>
        <Head kicker="Plan" title="Rate plan" />
        <Panel title="No plan">
          <Empty title="No rate plan is applied">
            Nothing has a price until one is: <code>ratebatch plan apply FILE</code>
          </Empty>
        </Panel>
      </>
    );
  }
  return (
    <>
      <Head
        kicker="Plan"
        title={p ? `Rate plan, version ${p.version}` : "Rate plan"}
        facts={
          p ? (
            <>
              <Fact name="State">{p.in_force ? <Mark kind="good">in force</Mark> : <Mark>not in force now</Mark>}</Fact>
              <Fact name="Valid from">
                <Moment at={p.valid_from} />
              </Fact>
              <Fact name="Currency">{p.currency}</Fact>
              <Fact name="Applied">
                <Moment at={p.applied_at} /> {p.author ? `by ${p.author}` : ""}
              </Fact>
              {p.note ? <Fact name="Note">{p.note}</Fact> : null}
            </>
          ) : null
        }
        actions={
          list.data ? (
            <label>
              <span className="sr">Version</span>
              <select className="field" value={version === "current" ? (p?.version ?? "current") : version} onChange={(e) => go(to(["plan", e.target.value, tab]))}>
                {version === "current" && !p ? <option value="current">In force</option> : null}
                {list.data.plans.map((x) => (
                  <option key={x.version} value={x.version}>
                    Version {x.version}
                    {x.in_force ? ", in force" : ""}
                  </option>
                ))}
              </select>
            </label>
          ) : null
        }
      />
      <nav className="tabs" aria-label="Parts of the plan">
        {tabs.map(([key, name]) => (
          <Link key={key} to={to(key === "rules" && version === "current" ? ["plan"] : ["plan", version, key])} current={tab === key}>
            {name}
          </Link>
        ))}
      </nav>
      {tab === "quote" ? (
        <QuoteForm />
      ) : tab === "changes" ? (
        list.data && p ? <Changes list={list.data} version={p.version} /> : <Loaded of={detail}>{() => null}</Loaded>
      ) : (
        <Loaded<unknown> of={list.error ? list : detail}>
          {() =>
            tab === "file" ? (
              <Panel title="The file as it was applied" plain>
                {detail.data?.body ? <pre tabIndex={0}>{detail.data.body}</pre> : <Empty title="Not shown">The whole file is for those who see every project.</Empty>}
              </Panel>
            ) : detail.data ? (
              <Rules detail={detail.data} />
            ) : null
          }
        </Loaded>
      )}
    </>
  );
}

function Rules({ detail }: { detail: PlanDetail }) {
  const services = [...new Set(detail.rules.map((r) => r.service))];
  return (
    <>
      {detail.description ? <p className="quiet">{detail.description}</p> : null}
      {services.map((s) => (
        <RuleTable key={s} service={s} rules={detail.rules.filter((r) => r.service === s)} currency={detail.plan.currency} />
      ))}
      {detail.others.length > 0 ? (
        <Panel title="Tiers, expressions, discounts and charges">
          <ul className="steps">
            {detail.others.map((o, i) => (
              <li key={i}>{o}</li>
            ))}
          </ul>
        </Panel>
      ) : null}
      {detail.rules.length === 0 && detail.others.length === 0 ? (
        <Panel title="Rules">
          <Empty title="No rule that you may see" />
        </Panel>
      ) : null}
    </>
  );
}

function RuleTable({ service, rules, currency }: { service: string; rules: readonly Rule[]; currency: string }) {
  const digits = Math.max(2, ...rules.map((r) => fractionDigits(r.cost)));
  const limited = rules.some((r) => r.start || r.end);
  return (
    <Panel title={service} plain>
      <div className="scroll" tabIndex={0} role="group" aria-label={`Rules of ${service}`}>
        <table className="rules">
          <thead>
            <tr>
              <th scope="col">Applies to</th>
              <th scope="col">Kind</th>
              <th scope="col">Group</th>
              <th scope="col">Project</th>
              {limited ? <th scope="col">Valid</th> : null}
              <th scope="col" className="num">
                Cost
              </th>
            </tr>
          </thead>
          <tbody>
            {rules.map((r) => (
              <tr key={r.id}>
                <th scope="row" className="name">
                  {r.kind === "threshold" ? `${r.field ? `${r.field} ` : ""}from ${r.match}` : r.field ? `${r.field} = ${r.match}` : "all usage"}
                  {r.description ? <div className="quiet small">{r.description}</div> : null}
                </th>
                <td>{r.kind}</td>
                <td>{r.group || "\u2013"}</td>
                <td className="name">{r.project || "every"}</td>
                {limited ? (
                  <td>
                    <Moment at={r.start} /> {"\u2013"} <Moment at={r.end} />
                  </td>
                ) : null}
                <td className="num">{r.type === "rate" ? <>{"\u00d7\u2009"}<Dec value={r.cost} digits={digits} /></> : <Dec value={r.cost} unit={currency} digits={digits} />}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

function Changes({ list, version }: { list: PlanList; version: number }) {
  const [from, setFrom] = useParam("from");
  const older = list.plans.filter((p) => p.version !== version);
  const before = list.plans.filter((p) => p.version < version).sort((a, b) => b.version - a.version)[0];
  const other = older.find((p) => String(p.version) === from) ?? before;
  const diff = useApi<PlanDiff>(other ? url(path`/plans/${String(other.version)}/diff/${String(version)}`) : null);
  return (
    <Panel
      title={other ? `From version ${other.version} to ${version}` : "What changed"}
      actions={
        older.length > 0 ? (
          <label>
            <span className="sr">Compare with</span>
            <select className="field" value={other?.version ?? ""} onChange={(e) => setFrom(e.target.value)}>
              {other ? null : <option value="">Compare with…</option>}
              {older.map((p) => (
                <option key={p.version} value={p.version}>
                  Version {p.version}
                </option>
              ))}
            </select>
          </label>
        ) : null
      }
    >
      {other ? (
        <Loaded of={diff} empty={(d) => (d.changes.length === 0 ? <Empty title="No rule changed">The two versions price the same.</Empty> : null)}>
          {(d) => (
            <div>
              {d.changes.map((c, i) => (
                <div className="change" key={i}>
                  <span>
                    <Mark kind={c.change === "added" ? "good" : c.change === "removed" ? "bad" : "warn"}>{c.change}</Mark>
                  </span>
                  <span>{c.text}</span>
                </div>
              ))}
            </div>
          )}
        </Loaded>
      ) : (
        <Empty title="The first version">There is none before it.</Empty>
      )}
    </Panel>
  );
}
