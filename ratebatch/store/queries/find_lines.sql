-- name:    find_lines
-- purpose: The lines that count of one scope, those of a closed month as they were billed, narrowed by what is known of the line that is looked for.
-- params:  scope String, from, to DateTime('UTC'), month Date, closed UInt32 (0 for an open month), metric String, resource String   ('' for any)
-- reads:   rated_lines of the scope and window, through the commits of the same
SELECT l.region, l.scope, l.begin, l.end, l.metric, l.resource, l.attributes, l.unit, l.qty, l.price, l.rule, l.bucket, l.part, l.revision, l.run_id
FROM rated_lines AS l
WHERE l.scope = {scope:String} AND l.begin >= {from:DateTime('UTC')} AND l.begin < {to:DateTime('UTC')}
  AND ({metric:String} = '' OR l.metric = {metric:String}) AND ({resource:String} = '' OR l.resource = {resource:String})
  AND l.key IN (
      SELECT argMax(if(c.kind = 'rated', c.key, toUInt128(0)), c.rank) FROM period_commits AS c
      WHERE c.scope = {scope:String} AND c.begin >= {from:DateTime('UTC')} AND c.begin < {to:DateTime('UTC')}
        AND c.run_id NOT IN (SELECT run_id FROM void_attempts)
        AND ({closed:UInt32} = 0 OR c.key IN (SELECT m.key FROM month_commits AS m WHERE m.month = {month:Date} AND m.closed = {closed:UInt32} AND m.kind = 'commit'))
      GROUP BY c.scope, c.begin)
ORDER BY l.begin, l.metric, l.resource, l.attributes, l.part
