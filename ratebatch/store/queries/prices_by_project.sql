-- name:    prices_by_project
-- purpose: Price per project and metric over the rated lines of a window.
-- params:  from, to DateTime('UTC')
-- reads:   rated_lines of the window through its current commits
SELECT scope, metric, sum(toDecimal256(price, 18)) AS price, sum(toDecimal256(qty, 18)) AS qty, any(unit) AS unit, count() AS lines
FROM rated_lines
WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')} AND bucket = ''
  AND key IN (
      SELECT argMax(if(c.kind = 'rated', c.key, 0), c.rank) FROM period_commits AS c
      WHERE c.begin >= {from:DateTime('UTC')} AND c.begin < {to:DateTime('UTC')} AND c.run_id NOT IN (SELECT run_id FROM void_attempts)
      GROUP BY c.scope, c.begin)
GROUP BY scope, metric ORDER BY scope, metric
