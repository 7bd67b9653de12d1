-- name:    tiered_lines
-- purpose: All lines that count of a metric in one period of a scope, with the adjustments of that metric.
-- params:  scope String, begin DateTime('UTC'), metric String, as_of DateTime64(6, 'UTC'), month Date, closed UInt32
-- reads:   rated_lines by (scope, begin), through the commits of that period
SELECT l.region, l.scope, l.begin, l.end, l.metric, l.resource, l.attributes, l.unit, l.qty, l.price, l.rule, l.bucket, l.part, l.revision, l.run_id
FROM rated_lines AS l
WHERE l.scope = {scope:String} AND l.begin = {begin:DateTime('UTC')}
  AND (l.metric = {metric:String} OR l.metric = 'adjustment' AND l.attributes['metric'] = {metric:String})
  AND l.key IN (
      SELECT argMax(if(c.kind = 'rated', c.key, toUInt128(0)), c.rank) FROM period_commits AS c
      WHERE c.scope = {scope:String} AND c.begin = {begin:DateTime('UTC')} AND c.committed_at <= {as_of:DateTime64(6, 'UTC')}
        AND c.run_id NOT IN (SELECT run_id FROM void_attempts WHERE voided_at <= {as_of:DateTime64(6, 'UTC')})
        AND ({closed:UInt32} = 0 OR c.key IN (SELECT key FROM month_commits WHERE month = {month:Date} AND closed = {closed:UInt32} AND kind = 'commit')))
ORDER BY l.resource, l.region, l.attributes, l.part
