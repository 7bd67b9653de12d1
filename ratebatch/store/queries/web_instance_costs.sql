-- name:    web_instance_costs
-- purpose: What one instance costs in a window, by metric and step: hours, or the periods where these are longer.
-- params:  scope String, instance String, step UInt32 (seconds), from, to DateTime('UTC'), month Date, closed UInt32 (0 for an open month)
-- reads:   rated_lines of the scope and window through its commits
SELECT toString(l.metric), toString(l.unit), toString(k.currency), toDateTime(intDiv(toUInt32(l.begin), {step:UInt32}) * {step:UInt32}, 'UTC') AS at, max(l.end) AS until, count() AS lines, sum(toDecimal256(l.qty, 18)) AS qty, sum(toDecimal256(l.price, 18)) AS price
FROM rated_lines AS l
INNER JOIN (
    SELECT argMax(if(c.kind = 'rated', c.key, toUInt128(0)), c.rank) AS key, argMax(toString(c.currency), c.rank) AS currency FROM period_commits AS c
    WHERE c.scope = {scope:String} AND c.begin >= {from:DateTime('UTC')} AND c.begin < {to:DateTime('UTC')}
      AND c.run_id NOT IN (SELECT run_id FROM void_attempts)
      AND ({closed:UInt32} = 0 OR c.key IN (SELECT m.key FROM month_commits AS m WHERE m.month = {month:Date} AND m.closed = {closed:UInt32} AND m.kind = 'commit'))
    GROUP BY c.scope, c.begin) AS k ON l.key = k.key
WHERE l.scope = {scope:String} AND l.begin >= {from:DateTime('UTC')} AND l.begin < {to:DateTime('UTC')} AND l.bucket = ''
  AND (l.resource = {instance:String} OR startsWith(l.resource, concat({instance:String}, '/')) OR l.attributes['instance_uuid'] = {instance:String})
GROUP BY l.metric, l.unit, k.currency, at ORDER BY at, l.metric
