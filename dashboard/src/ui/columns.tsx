import { format, greatest, share, sign } from "../format/decimal";
import { moment } from "../format/time";
import { useShared } from "../settings";
import { Link } from "./parts";

export interface Column {
  key: string;
  /** A day, or a moment when `moment` says so. */
  name: string;
  moment?: boolean;
  value: string;
  previous?: string | null;
  address?: string;
}

/**
 * Columns of exact amounts over time. Their heights are integer proportions of
 * the decimals (share); the amounts themselves are in each column's text.
 */
export function Columns({ label, items, unit, low }: { label: string; items: readonly Column[]; unit: string; low?: boolean }) {
  const { zone } = useShared();
  if (items.length === 0) return null;
  const top = greatest(items.flatMap((x) => (x.previous ? [x.value, x.previous] : [x.value])));
  const compared = items.some((x) => x.previous && sign(x.previous) !== 0);
  const name = (x: Column) => (x.moment ? moment(x.name, zone) : x.name);
  const text = (x: Column) => `${name(x)}: ${format(x.value).text} ${unit}${compared && x.previous ? `, before ${format(x.previous).text} ${unit}` : ""}`;
  const tall = (v: string) => ({ height: `${share(v, top) / 10}%` });
  return (
    <div>
      <ul className="columns" aria-label={label} style={low ? { height: "5rem" } : undefined}>
        {items.map((x) => {
          const inside = (
            <span className="pair">
              {compared ? <i className="before" style={tall(x.previous ?? "0")} /> : null}
              <i style={tall(x.value)} />
            </span>
          );
          return (
            <li key={x.key} title={text(x)}>
              {x.address ? (
                <Link to={x.address} label={text(x)}>
                  {inside}
                </Link>
              ) : (
                <span className="col" role="img" aria-label={text(x)}>
                  {inside}
                </span>
              )}
            </li>
          );
        })}
      </ul>
      <div className="axis" aria-hidden="true">
        <span>{name(items[0]!)}</span>
        {items.length > 1 ? <span>{name(items[items.length - 1]!)}</span> : null}
      </div>
    </div>
  );
}
