-- name:    web_kitty_frames
-- purpose: Rated lines in the order of their periods, as CloudKitty's dataframes has them.
-- params:  scope String ('' for any), from, to DateTime('UTC'), month Date, closed UInt32 (0 for an open month), filter_keys, filter_values Array(String) (pairs; several of one key are an OR), zone String (whose days, weeks, months and years are meant), limit, skip UInt32
-- reads:   rated_lines of the window through its commits
SELECT l.begin, l.end, toString(l.scope), toString(l.metric), l.resource, l.attributes, toString(l.unit), l.qty, l.price, count() OVER () AS total
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
ORDER BY l.begin, l.end, l.scope, l.metric, l.resource, l.region, toString(l.attributes), l.part LIMIT {limit:UInt32} OFFSET {skip:UInt32}
