/* Small parts that every page is made of. */
import { useEffect, type ReactNode } from "react";
import type { ApiError } from "../api/client";
import type { Answer } from "../api/use";
import { format, share, sign } from "../format/decimal";
import { ago, isMoment, moment } from "../format/time";
import { go } from "../router";
import { useShared } from "../settings";

/** A link inside the dashboard: a real address, opened without loading the page again. */
export function Link({ to, children, current, className, label }: { to: string; children: ReactNode; current?: boolean; className?: string; label?: string }) {
  return (
    <a
      href={to}
      className={className}
      aria-current={current ? "page" : undefined}
      aria-label={label}
      onClick={(e) => {
        if (e.defaultPrevented || e.button !== 0 || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return;
        e.preventDefault();
        go(to);
        window.scrollTo(0, 0);
      }}
    >
      {children}
    </a>
  );
}

/**
 * An exact amount with its unit. Digits behind `least` are dimmed but never left
 * out; `digits` pads to a column's widest fraction, so that points stand in line.
 */
export function Dec({ value, unit, least = 2, digits, plus }: { value: string; unit?: string; least?: number; digits?: number; plus?: boolean }) {
  const f = format(value, least);
  const missing = digits === undefined ? 0 : digits - Math.max(0, f.cents.length - 1) - f.rest.length;
  const pad = missing > 0 ? (f.cents === "" ? "." : "") + "0".repeat(missing) : "";
  return (
    <span className="dec">
      {plus && sign(value) > 0 ? "+" : ""}
      {f.head}
      {f.cents === "." ? <span className="rest">.{f.rest}</span> : f.cents}
      {f.cents !== "." && f.rest !== "" && <span className="rest">{f.rest}</span>}
      {pad !== "" && (
        <span className="rest pad" aria-hidden="true">
          {pad}
        </span>
      )}
      {unit ? <span className="unit">{unit}</span> : null}
    </span>
  );
}

/** Moment writes a time in the chosen zone, with its age when asked. */
export function Moment({ at, age }: { at: string | null | undefined; age?: boolean }) {
  const { zone } = useShared();
  if (!isMoment(at)) return <span className="quiet">{"\u2013"}</span>;
  return (
    <time dateTime={at} className="nowrap" title={at}>
      {moment(at, zone)}
      {age ? <span className="quiet small"> {"\u00b7"} {ago(at, new Date())}</span> : null}
    </time>
  );
}

/** Pick is a choice of few, as buttons of which one is pressed. */
export function Pick<T extends string>({ label, value, options, onPick }: { label: string; value: T; options: readonly (readonly [T, string])[]; onPick: (v: T) => void }) {
  return (
    <div className="choice" role="group" aria-label={label}>
      {options.map(([v, text]) => (
        <button key={v} type="button" aria-pressed={v === value} onClick={() => onPick(v)}>
          {text}
        </button>
      ))}
    </div>
  );
}

export function Panel({ title, note, actions, children, plain, id }: { title: string; note?: ReactNode; actions?: ReactNode; children: ReactNode; plain?: boolean; id?: string }) {
  return (
    <section className="panel" aria-label={title} id={id}>
      <header>
        <div>
          <h2>{title}</h2>
          {note ? <p className="quiet">{note}</p> : null}
        </div>
        {actions}
      </header>
      {plain ? children : <div className="body">{children}</div>}
    </section>
  );
}

export function Head({ kicker, title, facts, actions }: { kicker?: ReactNode; title: string; facts?: ReactNode; actions?: ReactNode }) {
  useEffect(() => {
    document.title = `${title} \u00b7 Ratebatch`;
  }, [title]);
  return (
    <div className="head">
      <div>
        {kicker ? <p className="kicker">{kicker}</p> : null}
        <h1 tabIndex={-1}>{title}</h1>
        {facts ? <dl className="facts">{facts}</dl> : null}
      </div>
      {actions ? <div className="actions">{actions}</div> : null}
    </div>
  );
}

export function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

export function Tile({ name, value, note }: { name: string; value: ReactNode; note?: ReactNode }) {
  return (
    <dl className="panel tile">
      <dt>{name}</dt>
      <dd className="value">{value}</dd>
      {note ? <dd className="note">{note}</dd> : null}
    </dl>
  );
}

export function Mark({ kind = "", children }: { kind?: "" | "good" | "warn" | "bad"; children: ReactNode }) {
  return <span className={`mark ${kind}`}>{children}</span>;
}

/** Nothing to show, and why; an empty panel would leave the reader guessing. */
export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="state">
      <strong>{title}</strong>
      {children}
    </div>
  );
}

export function Failure({ error, again }: { error: ApiError; again?: () => void }) {
  return (
    <div className="state" role="alert">
      <strong>{error.message}</strong>
      {error.hint ? <span>{error.hint}</span> : null}
      {again && error.status !== 404 && error.status !== 403 ? (
        <div>
          <button type="button" className="button" onClick={again}>
            Try again
          </button>
        </div>
      ) : null}
    </div>
  );
}

/**
 * Loaded shows an answer in one of its four states: waiting, failed, nothing
 * there, there. Figures that could not be asked for again stay and say so; that no
 * server answers at all says the banner, once for the page.
 */
export function Loaded<T>({ of, empty, low, children }: { of: Answer<T>; empty?: (data: T) => ReactNode; low?: boolean; children: (data: T) => ReactNode }) {
  if (of.loading) {
    return (
      <div className={`skeleton${low ? " low" : ""}`} role="status">
        <span className="sr">Loading</span>
      </div>
    );
  }
  if (of.data === null) return of.error ? <Failure error={of.error} again={of.again} /> : null;
  const nothing = empty?.(of.data);
  return (
    <div className={of.old ? "old" : undefined} aria-busy={of.old}>
      {of.error && of.error.status !== 0 ? (
        <p className="alert" role="status">
          {of.error.message.replace(/\.$/, "")}: these are the figures from before.{of.error.hint ? ` ${of.error.hint}` : ""}
        </p>
      ) : null}
      {nothing ? nothing : children(of.data)}
    </div>
  );
}

/** Bar shows a share of the greatest value; the figure stands beside it. */
export function Bar({ thousandths }: { thousandths: number }) {
  return (
    <svg className="bar" viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true">
      <rect width="1000" height="10" />
      <rect width={thousandths} height="10" />
    </svg>
  );
}

/** DecimalBar is a Bar of exact amounts. */
export function DecimalBar({ value, of }: { value: string; of: string }) {
  return <Bar thousandths={share(value, of)} />;
}

/** Pager steps through a list by offset. */
export function Pager({ total, limit, offset, onOffset, what }: { total: number; limit: number; offset: number; onOffset: (offset: number) => void; what: string }) {
  if (total <= limit && offset === 0) return null;
  return (
    <nav className="pager" aria-label={`Pages of ${what}`}>
      <span>
        {Math.min(offset + 1, total)}{"\u2013"}{Math.min(offset + limit, total)} of {total} {what}
      </span>
      <button type="button" className="button" disabled={offset === 0} onClick={() => onOffset(Math.max(0, offset - limit))}>
        Previous
      </button>
      <button type="button" className="button" disabled={offset + limit >= total} onClick={() => onOffset(offset + limit)}>
        Next
      </button>
    </nav>
  );
}

/** Difference says by how much an amount rose or fell. */
export function Difference({ value, percent, unit }: { value: string | null; percent: string | null; unit?: string }) {
  if (value === null) return <span className="quiet">{"\u2013"}</span>;
  const s = sign(value);
  return (
    <span className={s > 0 ? "up" : s < 0 ? "down" : ""}>
      <Dec value={value} plus unit={unit} />
      {/* A blank outside the span, where a narrow tile may break the line. */}
      {percent !== null ? " " : ""}
      {percent !== null ? <span className="small nowrap">({s > 0 ? "+" : ""}{format(percent, 1).text} %)</span> : null}
    </span>
  );
}
