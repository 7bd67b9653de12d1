import { useRef, useState } from "react";
import { ApiError, post, url } from "../api/client";
import type { MetricList, ProjectList, Quote, QuoteItem, QuoteRequest } from "../api/types";
import { useApi } from "../api/use";
import { fractionDigits, isDecimal } from "../format/decimal";
import { useShared } from "../settings";
import { Dec, Empty, Failure, Loaded, Mark, Panel } from "../ui/parts";

interface Draft {
  id: number;
  metric: string;
  qty: string;
  attributes: Record<string, string>;
}

let ids = 0;

/** request turns what was typed into a question; the quantity stays the text that was typed. */
export function request(drafts: readonly { metric: string; qty: string; attributes: Record<string, string> }[], project: string): QuoteRequest {
  return {
    ...(project ? { project } : {}),
    items: drafts.map(({ metric, qty, attributes }): QuoteItem => {
      const set = Object.fromEntries(Object.entries(attributes).filter(([, v]) => v !== ""));
      return { metric, qty: qty.trim(), ...(Object.keys(set).length > 0 ? { attributes: set } : {}) };
    }),
  };
}

/** What usage would cost by the plan in force, reckoned by the server. */
export function QuoteForm() {
  const { session } = useShared();
  const metrics = useApi<MetricList>(url("/metrics"));
  const projects = useApi<ProjectList>(url("/projects", { limit: 500 }));
  return (
    <Loaded of={metrics} empty={(m) => (m.metrics.length === 0 ? <Panel title="Quote"><Empty title="No metrics are applied">A quote needs metrics and a plan: <code>ratebatch metrics apply FILE</code></Empty></Panel> : null)}>
      {(m) => <Form metrics={m} projects={session?.project ? [] : (projects.data?.projects ?? [])} />}
    </Loaded>
  );
}

function Form({ metrics, projects }: { metrics: MetricList; projects: ProjectList["projects"] }) {
  const blank = (): Draft => ({ id: ++ids, metric: metrics.metrics[0]!.name, qty: "1", attributes: {} });
  const [drafts, setDrafts] = useState<Draft[]>(() => [blank()]);
  const [project, setProject] = useState("");
  const [quote, setQuote] = useState<Quote | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const [busy, setBusy] = useState(false);
  const question = useRef(0);
  // What was asked before is no answer to what stands in the form now, also when it comes late.
  const forget = () => {
    question.current++;
    setQuote(null);
    setError(null);
    setBusy(false);
  };
  const change = (id: number, set: Partial<Draft>) => {
    forget();
    setDrafts((all) => all.map((d) => (d.id === id ? { ...d, ...set } : d)));
  };
  const bad = drafts.some((d) => !isDecimal(d.qty.trim()));
  const ask = () => {
    forget();
    setBusy(true);
    const mine = question.current;
    const still = (then: () => void) => {
      if (mine === question.current) then();
    };
    post<Quote>(url("/quote"), request(drafts, project))
      .then(
        (q) => still(() => setQuote(q)),
        (err: unknown) => still(() => setError(err instanceof ApiError ? err : new ApiError(0, "internal", String(err)))),
      )
      .finally(() => still(() => setBusy(false)));
  };
  return (
    <div className="grid">
      <Panel title="What would it cost?">
        <form
          className="stack"
          onSubmit={(e) => {
            e.preventDefault();
            if (!bad) ask();
          }}
        >
          {projects.length > 0 ? (
            <label className="labelled">
              For
              <select className="field" value={project} onChange={(e) => { setProject(e.target.value); forget(); }}>
                <option value="">anyone (general rules)</option>
                {projects.map((p) => (
                  <option key={p.id} value={p.id}>
                    {p.name || p.id}
                  </option>
                ))}
              </select>
            </label>
          ) : null}
          {drafts.map((d, n) => {
            const m = metrics.metrics.find((x) => x.name === d.metric);
            const fields = [...new Set([...(m?.groupby ?? []), ...(m?.metadata ?? [])])];
            return (
              <fieldset key={d.id} className="item">
                <legend>Item {n + 1}</legend>
                <div className="formrow">
                  <label className="labelled">
                    Metric
                    <select className="field" value={d.metric} onChange={(e) => change(d.id, { metric: e.target.value, attributes: {} })}>
                      {metrics.metrics.map((x) => (
                        <option key={x.name}>{x.name}</option>
                      ))}
                    </select>
                  </label>
                  <label className="labelled">
                    Quantity{m?.unit ? ` in ${m.unit}` : ""}
                    <input className="field num" inputMode="decimal" value={d.qty} aria-invalid={!isDecimal(d.qty.trim())} onChange={(e) => change(d.id, { qty: e.target.value })} />
                  </label>
                  {fields.map((f) => (
                    <label className="labelled" key={f}>
                      {f}
                      <input className="field" value={d.attributes[f] ?? ""} onChange={(e) => change(d.id, { attributes: { ...d.attributes, [f]: e.target.value } })} />
                    </label>
                  ))}
                </div>
                {m?.description ? <p className="quiet small">{m.description}</p> : null}
                {drafts.length > 1 ? (
                  <button type="button" className="button bare small" onClick={() => { forget(); setDrafts((all) => all.filter((x) => x.id !== d.id)); }}>
                    Remove item {n + 1}
                  </button>
                ) : null}
              </fieldset>
            );
          })}
          {bad ? (
            <p className="alert" role="alert">
              A quantity is digits with a point if need be, such as 730 or 0.25.
            </p>
          ) : null}
          <div className="filters">
            <button type="button" className="button" disabled={drafts.length >= 100} onClick={() => { forget(); setDrafts((all) => [...all, blank()]); }}>
              Add an item
            </button>
            <button type="submit" className="button main" disabled={bad || busy}>
              Quote
            </button>
          </div>
        </form>
      </Panel>
      <Panel title="Quote" note={quote ? `for ${projects.find((p) => p.id === quote.project)?.name || quote.project || "anyone"}, by plan version ${quote.plan_version}` : "nothing is written or billed"} plain>
        {error ? <Failure error={error} again={ask} /> : quote ? <><Result quote={quote} /><Warnings of={quote.warnings} /></> : <Empty title="No quote yet">Fill in the form; the server prices it by the plan in force.</Empty>}
      </Panel>
    </div>
  );
}

/** Warnings say what a month's bill counts beside the quote. */
export function Warnings({ of }: { of: string[] }) {
  return of.length === 0 ? null : (
    <ul className="steps">
      {of.map((w) => (
        <li key={w}>
          <Mark kind="warn">{w}</Mark>
        </li>
      ))}
    </ul>
  );
}

function Result({ quote }: { quote: Quote }) {
  const digits = Math.max(2, ...[...quote.items.map((i) => i.price), quote.total].map(fractionDigits));
  return (
    <div className="scroll" tabIndex={0} role="group" aria-label="Quoted items">
      <table>
        <thead>
          <tr>
            <th scope="col">Item</th>
            <th scope="col" className="num">
              Quantity
            </th>
            <th scope="col" className="num">
              Price
            </th>
          </tr>
        </thead>
        <tbody>
          {quote.items.map((i, n) => (
            <tr key={n}>
              <th scope="row" className="name">
                {i.metric}
                {i.bucket ? (
                  <>
                    {" "}
                    <Mark kind="warn">{i.bucket}</Mark>
                  </>
                ) : null}
                <div className="quiet small">{i.reason || i.rule}</div>
              </th>
              <td className="num">
                <Dec value={i.qty} unit={i.unit} least={0} />
              </td>
              <td className="num">
                <Dec value={i.price} unit={quote.currency} digits={digits} />
              </td>
            </tr>
          ))}
        </tbody>
        <tfoot>
          <tr>
            <th scope="row">Total</th>
            <td />
            <td className="num">
              <Dec value={quote.total} unit={quote.currency} digits={digits} />
            </td>
          </tr>
        </tfoot>
      </table>
    </div>
  );
}
