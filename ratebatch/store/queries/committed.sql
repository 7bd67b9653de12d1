-- name:    committed
-- purpose: What of an attempt counts now, per currency: read back after the commits were written.
-- params:  run_id UUID, from, to DateTime('UTC')
-- reads:   period_commits of the window
SELECT currency, count() AS periods, groupUniqArray(scope) AS scopes, sum(lines) AS lines, sum(total) AS total,
       sum(unpriced) AS unpriced, sum(rejected) AS rejected, sum(skipped) AS skipped
FROM (
    SELECT scope, begin, argMax(run_id, rank) AS run_id, argMax(kind, rank) AS kind, argMax(currency, rank) AS currency,
           argMax(lines, rank) AS lines, argMax(total, rank) AS total,
           argMax(unpriced, rank) AS unpriced, argMax(rejected, rank) AS rejected, argMax(skipped, rank) AS skipped
    FROM period_commits AS c
    WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')} AND c.run_id NOT IN (SELECT run_id FROM void_attempts)
    GROUP BY scope, begin)
WHERE run_id = {run_id:UUID} AND kind = 'rated'
GROUP BY currency ORDER BY currency
