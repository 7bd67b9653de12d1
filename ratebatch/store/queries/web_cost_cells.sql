-- name:    web_cost_cells
-- purpose: Lines, quantity and price of each scope and metric of a window, those in buckets apart.
-- params:  from, to DateTime('UTC'), month Date, closed UInt32 (0 for an open month), currency String
-- reads:   rated_lines of the window through its commits of one currency
-- why:     currency stands with the commits; asked for one by one the lines need no join, which would cost as much as the sums.
SELECT toString(scope), toString(metric), toString(unit), toString(bucket), count() AS lines, sum(toDecimal256(qty, 18)) AS qty, sum(toDecimal256(price, 18)) AS price
FROM rated_lines
WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')}
  AND key IN (
    SELECT argMax(if(c.kind = 'rated', c.key, toUInt128(0)), c.rank) FROM period_commits AS c
    WHERE c.begin >= {from:DateTime('UTC')} AND c.begin < {to:DateTime('UTC')}
      AND c.run_id NOT IN (SELECT run_id FROM void_attempts)
      AND ({closed:UInt32} = 0 OR c.key IN (SELECT m.key FROM month_commits AS m WHERE m.month = {month:Date} AND m.closed = {closed:UInt32} AND m.kind = 'commit'))
    GROUP BY c.scope, c.begin
    HAVING argMax(toString(c.currency), c.rank) = {currency:String})
GROUP BY scope, metric, unit, bucket ORDER BY scope, metric, unit, bucket
