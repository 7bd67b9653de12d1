/* Which scope is furthest behind. */

interface Rated {
  scope: string;
  currency: string;
  rated_until: string;
}

/**
 * Sorts rows of scopes and currencies: scopes that rating goes on with, those
 * that are furthest behind first; then rows of a currency that a scope had
 * before, and disabled scopes, of which nothing is awaited.
 */
export function behindFirst<T extends Rated>(rows: T[], states: Record<string, { active: boolean }>): { rows: T[]; behind: string | undefined } {
  const reached = new Map<string, string>();
  for (const x of rows) {
    if (x.rated_until > (reached.get(x.scope) ?? "")) reached.set(x.scope, x.rated_until);
  }
  const settled = (x: T) => states[x.scope]?.active === false || x.rated_until !== reached.get(x.scope);
  const text = (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0);
  const sorted = [...rows].sort((a, b) => Number(settled(a)) - Number(settled(b)) || text(a.rated_until, b.rated_until) || text(a.scope, b.scope) || text(a.currency, b.currency));
  const first = sorted[0];
  return { rows: sorted, behind: first && !settled(first) ? first.rated_until : undefined };
}
