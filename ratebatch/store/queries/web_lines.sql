-- name:    web_lines
-- purpose: A page of rated lines in the order of scope, begin, metric, resource.
-- params:  from, to DateTime('UTC'), month Date, closed UInt32 (0 for an open month), scope, metric, resource, instance, bucket String ('' for any; bucket 'lines' for priced ones), after_scope String, after_begin DateTime('UTC'), after_metric, after_resource, after_region, after_attributes String, after_part UInt16, paged Bool, bounded Bool, until_scope String, until_begin DateTime('UTC'), until_metric, until_resource String, limit UInt32
-- reads:   rated_lines from the cursor to the bound that web_line_bound found, through the commits between
-- why:     a cursor costs the same on every page; an offset reads all pages before it.
SELECT l.region, l.scope, l.begin, l.end, l.metric, l.resource, l.attributes, l.unit, l.qty, l.price, l.rule, l.bucket, l.part, l.revision, l.run_id, toString(l.attributes)
FROM rated_lines AS l
WHERE l.begin >= {from:DateTime('UTC')} AND l.begin < {to:DateTime('UTC')}
  AND l.scope >= {after_scope:String} AND (NOT {bounded:Bool} OR l.scope <= {until_scope:String})
  AND ({scope:String} = '' OR l.scope = {scope:String}) AND ({metric:String} = '' OR l.metric = {metric:String})
  AND ({resource:String} = '' OR l.resource = {resource:String})
  AND ({instance:String} = '' OR l.resource = {instance:String} OR startsWith(l.resource, concat({instance:String}, '/')) OR l.attributes['instance_uuid'] = {instance:String})
  AND ({bucket:String} = '' OR l.bucket = if({bucket:String} = 'lines', '', {bucket:String}))
  AND (NOT {paged:Bool} OR (toString(l.scope), l.begin) >= ({after_scope:String}, {after_begin:DateTime('UTC')}))
  AND (NOT {bounded:Bool} OR (toString(l.scope), l.begin, toString(l.metric), l.resource) <= ({until_scope:String}, {until_begin:DateTime('UTC')}, {until_metric:String}, {until_resource:String}))
  AND (NOT {paged:Bool} OR (toString(l.scope), l.begin, toString(l.metric), l.resource, toString(l.region), toString(l.attributes), l.part)
      > ({after_scope:String}, {after_begin:DateTime('UTC')}, {after_metric:String}, {after_resource:String}, {after_region:String}, {after_attributes:String}, {after_part:UInt16}))
  AND l.key IN (
    SELECT argMax(if(c.kind = 'rated', c.key, toUInt128(0)), c.rank) FROM period_commits AS c
    WHERE c.begin >= {from:DateTime('UTC')} AND c.begin < {to:DateTime('UTC')} AND ({scope:String} = '' OR c.scope = {scope:String})
      AND c.scope >= {after_scope:String} AND (NOT {bounded:Bool} OR c.scope <= {until_scope:String})
      AND c.run_id NOT IN (SELECT run_id FROM void_attempts)
      AND ({closed:UInt32} = 0 OR c.key IN (SELECT m.key FROM month_commits AS m WHERE m.month = {month:Date} AND m.closed = {closed:UInt32} AND m.kind = 'commit'))
    GROUP BY c.scope, c.begin)
ORDER BY l.scope, l.begin, l.metric, l.resource, l.region, toString(l.attributes), l.part LIMIT {limit:UInt32}
