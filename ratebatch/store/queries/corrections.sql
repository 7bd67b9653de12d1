-- name:    corrections
-- purpose: What rating again after the close changed in closed months, per scope and currency: current less frozen.
-- reads:   month_commits of the closed months, and those months' commits
SELECT month, scope, currency, sum(of_total) AS current, sum(frozen_total) AS frozen
FROM (
    SELECT arrayFirst(m -> p.begin >= m.1 AND p.begin < m.2, (SELECT groupArray((c.first, c.until, c.month)) FROM closed_months AS c)).3 AS month,
           p.scope AS scope, argMax(toString(p.currency), p.rank) AS currency,
           if(argMax(p.kind, p.rank) = 'rated', argMax(p.total, p.rank), toDecimal256(0, 18)) AS of_total, toDecimal256(0, 18) AS frozen_total
    FROM period_commits AS p
    WHERE arrayExists(m -> p.begin >= m.1 AND p.begin < m.2, (SELECT groupArray((c.first, c.until)) FROM closed_months AS c))
      AND p.run_id NOT IN (SELECT run_id FROM void_attempts)
    GROUP BY p.scope, p.begin
    UNION ALL
    SELECT f.month, f.scope, toString(f.currency), toDecimal256(0, 18), f.total FROM month_commits AS f
    WHERE f.kind = 'commit' AND (f.month, f.closed) IN (SELECT c.month, c.closed FROM closed_months AS c))
GROUP BY month, scope, currency HAVING current != frozen ORDER BY month, scope, currency
