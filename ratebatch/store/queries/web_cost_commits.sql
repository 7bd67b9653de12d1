-- name:    web_cost_commits
-- purpose: What the commits of a window say of each scope: lines, total, and up to where it is rated.
-- params:  from, to DateTime('UTC'), month Date, closed UInt32 (0 for an open month)
-- reads:   the window's commits
SELECT scope, currency, sum(of_lines) AS lines, sum(of_total) AS total, max(until) AS rated_until, count() AS periods
FROM (
    SELECT toString(c.scope) AS scope, c.begin AS begin, argMax(toString(c.currency), c.rank) AS currency, argMax(c.kind, c.rank) AS kind, argMax(c.end, c.rank) AS until,
           argMax(c.lines, c.rank) AS of_lines, argMax(c.total, c.rank) AS of_total
    FROM period_commits AS c
    WHERE c.begin >= {from:DateTime('UTC')} AND c.begin < {to:DateTime('UTC')}
      AND c.run_id NOT IN (SELECT run_id FROM void_attempts)
      AND ({closed:UInt32} = 0 OR c.key IN (SELECT m.key FROM month_commits AS m WHERE m.month = {month:Date} AND m.closed = {closed:UInt32} AND m.kind = 'commit'))
    GROUP BY c.scope, c.begin)
WHERE kind = 'rated'
GROUP BY scope, currency ORDER BY scope, currency
