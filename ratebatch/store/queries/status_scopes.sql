-- name:    status_scopes
-- purpose: Per scope, up to when it is rated, and what its current commits amount to.
-- reads:   period_commits grouped once
SELECT scope, currency, count() AS periods, min(begin) AS first, max(end) AS rated_until, sum(total) AS price,
       sum(unpriced) AS unpriced, sum(rejected) AS rejected, sum(skipped) AS skipped
FROM (
    SELECT c.scope AS scope, c.begin AS begin, argMax(c.end, c.rank) AS end, argMax(c.kind, c.rank) AS kind, argMax(c.currency, c.rank) AS currency,
           argMax(c.total, c.rank) AS total, argMax(c.unpriced, c.rank) AS unpriced, argMax(c.rejected, c.rank) AS rejected,
           argMax(c.skipped, c.rank) AS skipped
    FROM period_commits AS c
    WHERE c.run_id NOT IN (SELECT run_id FROM void_attempts)
    GROUP BY c.scope, c.begin)
WHERE kind = 'rated'
GROUP BY scope, currency ORDER BY scope, currency
