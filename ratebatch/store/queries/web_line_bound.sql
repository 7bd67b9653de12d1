-- name:    web_line_bound
-- purpose: Where a page of lines ends at the latest: the place of its last line by the table's own order.
-- params:  from, to DateTime('UTC'), month Date, closed UInt32 (0 for an open month), scope, metric, resource, instance, bucket String ('' for any; bucket 'lines' for priced ones), after_scope String, after_begin DateTime('UTC'), after_metric, after_resource String, limit UInt32
-- reads:   the key's columns of rated_lines in the table's order from the cursor on, until the page is full
-- why:     web_lines orders by attributes at last, which nothing reads in order: without a bound it would read the attributes of
--          all lines of the window. Small blocks, since each part is begun and few of them are read to the end of one.
--          Lines beside the cursor's own may come before it by attributes, so these are not counted.
SELECT toString(l.scope) AS until_scope, l.begin AS until_begin, toString(l.metric) AS until_metric, l.resource AS until_resource
FROM rated_lines AS l
WHERE l.begin >= {from:DateTime('UTC')} AND l.begin < {to:DateTime('UTC')} AND l.scope >= {after_scope:String}
  AND ({scope:String} = '' OR l.scope = {scope:String}) AND ({metric:String} = '' OR l.metric = {metric:String})
  AND ({resource:String} = '' OR l.resource = {resource:String})
  AND ({instance:String} = '' OR l.resource = {instance:String} OR startsWith(l.resource, concat({instance:String}, '/')) OR l.attributes['instance_uuid'] = {instance:String})
  AND ({bucket:String} = '' OR l.bucket = if({bucket:String} = 'lines', '', {bucket:String}))
  AND (toString(l.scope), l.begin, toString(l.metric), l.resource) > ({after_scope:String}, {after_begin:DateTime('UTC')}, {after_metric:String}, {after_resource:String})
  AND l.key IN (
    SELECT argMax(if(c.kind = 'rated', c.key, toUInt128(0)), c.rank) FROM period_commits AS c
    WHERE c.begin >= {from:DateTime('UTC')} AND c.begin < {to:DateTime('UTC')} AND ({scope:String} = '' OR c.scope = {scope:String})
      AND c.scope >= {after_scope:String}
      AND c.run_id NOT IN (SELECT run_id FROM void_attempts)
      AND ({closed:UInt32} = 0 OR c.key IN (SELECT m.key FROM month_commits AS m WHERE m.month = {month:Date} AND m.closed = {closed:UInt32} AND m.kind = 'commit'))
    GROUP BY c.scope, c.begin)
ORDER BY l.scope, l.begin, l.metric, l.resource LIMIT 1 OFFSET {limit:UInt32}
SETTINGS max_block_size = 8192
