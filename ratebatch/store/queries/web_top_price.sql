-- name:    web_top_price
-- purpose: What each resource costs in a window, by the instance it belongs to; with the number and total of all lines that were read.
-- params:  from, to DateTime('UTC'), month Date, closed UInt32 (0 for an open month), currency String, limit UInt32
-- reads:   rated_lines of the window through its commits of one currency; the ports of the same window
-- why:     the attribute instance_uuid of ports would say the same, but reading the attributes of a day's lines takes ten times as long.
--          all_lines and all_prices include what has no instance, so that they can be compared with the commits; lines of no
--          instance at all give a row too, one that is not shown.
SELECT instance, scope, price, instance != toUUID('00000000-0000-0000-0000-000000000000') AND priced > 0 AS shown, all_lines, all_prices
FROM (
    SELECT instance, scope, sum(of_price) AS price, sum(of_priced) AS priced, row_number() OVER () AS row, sum(sum(of_lines)) OVER () AS all_lines, sum(sum(of_price)) OVER () AS all_prices
    FROM (
        SELECT if(p.instance_uuid = toUUID('00000000-0000-0000-0000-000000000000'), toUUIDOrZero(substring(l.resource, 1, 36)), p.instance_uuid) AS instance, l.scope AS scope, l.of_price AS of_price, l.of_lines AS of_lines, l.of_priced AS of_priced
        FROM (
            SELECT toString(scope) AS scope, resource, sum(toDecimal256(price, 18)) AS of_price, count() AS of_lines, countIf(bucket = '') AS of_priced
            FROM rated_lines
            WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')}
              AND key IN (
    SELECT argMax(if(c.kind = 'rated', c.key, toUInt128(0)), c.rank) FROM period_commits AS c
    WHERE c.begin >= {from:DateTime('UTC')} AND c.begin < {to:DateTime('UTC')}
      AND c.run_id NOT IN (SELECT run_id FROM void_attempts)
      AND ({closed:UInt32} = 0 OR c.key IN (SELECT m.key FROM month_commits AS m WHERE m.month = {month:Date} AND m.closed = {closed:UInt32} AND m.kind = 'commit'))
    GROUP BY c.scope, c.begin
    HAVING argMax(toString(c.currency), c.rank) = {currency:String})
            GROUP BY scope, resource) AS l
        LEFT JOIN (
            SELECT toString(v.port_uuid) AS port, any(v.instance_uuid) AS instance_uuid FROM port_volume_hourly AS v
            WHERE v.bucket >= {from:DateTime('UTC')} AND v.bucket < {to:DateTime('UTC')}
            GROUP BY port) AS p ON p.port = l.resource)
    GROUP BY instance, scope)
WHERE shown OR row = 1
ORDER BY shown DESC, price DESC, instance, scope LIMIT {limit:UInt32}
