-- name:    web_kitty_summary
-- purpose: Quantity and price of lines by any attributes, as CloudKitty's summary has it.
-- params:  scope String ('' for any), from, to DateTime('UTC'), month Date, closed UInt32 (0 for an open month), filter_keys, filter_values Array(String) (pairs; several of one key are an OR), zone String (whose days, weeks, months and years are meant), groups Array(String)
-- reads:   rated_lines of the window through its commits
-- why:     keys come from a request, so they are looked up as values and never pasted as names.
SELECT arrayMap(g -> multiIf(g = 'type', toString(l.metric), g IN ('project_id', 'tenant_id', 'scope_id'), toString(l.scope), g = 'id', l.resource, g = 'region', toString(l.region),
        g = 'time', toString(l.begin), g = 'day_of_the_year', toString(toDayOfYear(l.begin, {zone:String})), g = 'week_of_the_year', leftPad(toString(toWeek(l.begin, 0, {zone:String})), 2, '0'),
        g = 'month', toString(toMonth(l.begin, {zone:String})), g = 'year', toString(toYear(l.begin, {zone:String})), l.attributes[g]), {groups:Array(String)}) AS labels, min(l.begin) AS first, max(l.end) AS last, sum(toDecimal256(l.qty, 18)) AS qty, sum(toDecimal256(l.price, 18)) AS price
FROM rated_lines AS l
WHERE l.begin >= {from:DateTime('UTC')} AND l.begin < {to:DateTime('UTC')} AND ({scope:String} = '' OR l.scope = {scope:String})
  AND arrayAll(f -> arrayExists((a, b) -> a = f AND b = multiIf(f = 'type', toString(l.metric), f IN ('project_id', 'tenant_id', 'scope_id'), toString(l.scope), f = 'id', l.resource, f = 'region', toString(l.region),
        f = 'time', toString(l.begin), f = 'day_of_the_year', toString(toDayOfYear(l.begin, {zone:String})), f = 'week_of_the_year', leftPad(toString(toWeek(l.begin, 0, {zone:String})), 2, '0'),
        f = 'month', toString(toMonth(l.begin, {zone:String})), f = 'year', toString(toYear(l.begin, {zone:String})), l.attributes[f]), {filter_keys:Array(String)}, {filter_values:Array(String)}), arrayDistinct({filter_keys:Array(String)}))
  AND l.key IN (
    SELECT argMax(if(c.kind = 'rated', c.key, toUInt128(0)), c.rank) FROM period_commits AS c
    WHERE c.begin >= {from:DateTime('UTC')} AND c.begin < {to:DateTime('UTC')} AND ({scope:String} = '' OR c.scope = {scope:String})
      AND c.run_id NOT IN (SELECT run_id FROM void_attempts)
      AND ({closed:UInt32} = 0 OR c.key IN (SELECT m.key FROM month_commits AS m WHERE m.month = {month:Date} AND m.closed = {closed:UInt32} AND m.kind = 'commit'))
    GROUP BY c.scope, c.begin)
GROUP BY labels ORDER BY labels
