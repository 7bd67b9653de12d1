-- name:    status_scopes
-- purpose: Per scope, up to when it is rated, and what its current commits amount to.
-- reads:   period_commits once for months of which all lines count (plain_now); for others twice, grouped by scope and day, and
--          period by period only what needs it
-- why:     grouping millions of commits by period costs seconds. Where all lines of a month count, each period has one commit.
--          Elsewhere a scope's day on which as many hours begin a period as there are commits, all rated, has one commit a
--          period: it is summed as it is. Others (rated again, reset, shorter periods) are looked at period by period.
WITH
    (SELECT groupArray(n.month) FROM plain_now AS n) AS plain_months_now,
    days AS (
        SELECT p.scope AS scope, toDate(p.begin) AS day, count() AS periods, min(p.begin) AS first, max(p.end) AS rated_until, sum(p.total) AS price,
               sum(p.unpriced) AS unpriced, sum(p.rejected) AS rejected, sum(p.skipped) AS skipped, min(toString(p.currency)) AS currency,
               count() = bitCount(groupBitOr(bitShiftLeft(toUInt32(1), intDiv(toUnixTimestamp(p.begin), 3600) % 24)))
                   AND countIf(p.kind != 'rated') = 0 AND min(p.currency) = max(p.currency) AS plain
        FROM period_commits AS p
        WHERE NOT has(plain_months_now, toYYYYMM(p.begin)) AND p.run_id NOT IN (SELECT run_id FROM void_attempts)
        GROUP BY p.scope, toDate(p.begin))
SELECT scope, currency, sum(periods) AS periods, min(first) AS first, max(rated_until) AS rated_until, sum(price) AS price,
       sum(unpriced) AS unpriced, sum(rejected) AS rejected, sum(skipped) AS skipped
FROM (
    SELECT toString(q.scope) AS scope, toString(q.currency) AS currency, count() AS periods, min(q.begin) AS first, max(q.end) AS rated_until, sum(q.total) AS price,
           sum(q.unpriced) AS unpriced, sum(q.rejected) AS rejected, sum(q.skipped) AS skipped
    FROM period_commits AS q WHERE has(plain_months_now, toYYYYMM(q.begin)) AND q.kind = 'rated' GROUP BY q.scope, q.currency
    UNION ALL
    SELECT scope, currency, periods, first, rated_until, price, unpriced, rejected, skipped FROM days WHERE plain
    UNION ALL
    SELECT scope, currency, 1, begin, until, of_total, of_unpriced, of_rejected, of_skipped
    FROM (
        SELECT c.scope AS scope, c.begin AS begin, argMax(c.end, c.rank) AS until, argMax(c.kind, c.rank) AS kind, argMax(toString(c.currency), c.rank) AS currency,
               argMax(c.total, c.rank) AS of_total, argMax(c.unpriced, c.rank) AS of_unpriced, argMax(c.rejected, c.rank) AS of_rejected,
               argMax(c.skipped, c.rank) AS of_skipped
        FROM period_commits AS c
        WHERE (c.scope, toDate(c.begin)) IN (SELECT scope, day FROM days WHERE NOT plain) AND c.run_id NOT IN (SELECT run_id FROM void_attempts)
        GROUP BY c.scope, c.begin)
    WHERE kind = 'rated')
GROUP BY scope, currency ORDER BY scope, currency
