-- name:    compare_lines
-- purpose: Quantities and prices of current lines by scope, metric and period, to compare with another system's.
-- params:  from DateTime('UTC'), to DateTime('UTC')    [from, to)
-- reads:   rated (its filters reach the commits)
SELECT scope, metric, begin, sum(qty) AS quantity, sum(price) AS amount
FROM rated
WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')}
GROUP BY scope, metric, begin ORDER BY scope, metric, begin
