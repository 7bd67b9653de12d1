-- name:    web_unpriced
-- purpose: Usage that is in a bucket instead of a price, by scope, metric, unit and reason.
-- params:  scope String ('' for any), from, to DateTime('UTC'), month Date, closed UInt32 (0 for an open month), limit, skip UInt32
-- reads:   the lines in buckets of the window, through its commits
SELECT toString(scope), toString(metric), toString(bucket), toString(rule), toString(l.unit), sum(toDecimal256(qty, 18)) AS qty, count() AS lines, min(l.begin) AS first, max(l.end) AS last, count() OVER () AS total
FROM rated_lines AS l
WHERE l.begin >= {from:DateTime('UTC')} AND l.begin < {to:DateTime('UTC')} AND bucket != '' AND ({scope:String} = '' OR scope = {scope:String})
  AND key IN (
    SELECT argMax(if(c.kind = 'rated', c.key, toUInt128(0)), c.rank) FROM period_commits AS c
    WHERE c.begin >= {from:DateTime('UTC')} AND c.begin < {to:DateTime('UTC')}
      AND c.run_id NOT IN (SELECT run_id FROM void_attempts)
      AND ({closed:UInt32} = 0 OR c.key IN (SELECT m.key FROM month_commits AS m WHERE m.month = {month:Date} AND m.closed = {closed:UInt32} AND m.kind = 'commit'))
    GROUP BY c.scope, c.begin)
GROUP BY scope, metric, bucket, rule, l.unit ORDER BY lines DESC, scope, metric, bucket, rule, l.unit LIMIT {limit:UInt32} OFFSET {skip:UInt32}
