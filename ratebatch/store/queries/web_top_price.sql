-- name:    web_top_price
-- purpose: What each instance costs each scope in a window; with the number and total of all lines that were read, and what of it is of no known instance.
-- params:  scope String ('' for any), from, to DateTime('UTC'), month Date, closed UInt32 (0 for an open month), currency String, limit UInt32
-- reads:   rated_lines of the window through its commits of one currency; the ports of the same window; all instances' ids
-- why:     the attribute instance_uuid of ports says whose they are, but reading the attributes of a day's lines takes ten times as
--          long as asking the hourly tier. They are read only where this tier does not reach back to the window's begin. Whatever is
--          neither a port nor an instance that ever sent a sample is no instance: all_lines and all_prices include it, so that they
--          can be compared with the commits, and other_prices is what it costs. It gives a row too, one that is not shown.
SELECT instance, scope, price, instance != toUUID('00000000-0000-0000-0000-000000000000') AND priced > 0 AS shown, all_lines, all_prices, other_prices
FROM (
    SELECT instance, scope, sum(of_price) AS price, sum(of_priced) AS priced, row_number() OVER () AS row, sum(sum(of_lines)) OVER () AS all_lines, sum(sum(of_price)) OVER () AS all_prices,
           sum(sumIf(of_price, instance = toUUID('00000000-0000-0000-0000-000000000000'))) OVER () AS other_prices
    FROM (
        SELECT multiIf(p.instance_uuid != toUUID('00000000-0000-0000-0000-000000000000'), p.instance_uuid,
                       toUUIDOrZero(substring(l.resource, 1, 36)) IN (SELECT instance_uuid FROM instances), toUUIDOrZero(substring(l.resource, 1, 36)), a.instance_uuid) AS instance,
               l.scope AS scope, l.of_price AS of_price, l.of_lines AS of_lines, l.of_priced AS of_priced
        FROM (
            SELECT toString(scope) AS scope, resource, sum(toDecimal256(price, 18)) AS of_price, count() AS of_lines, countIf(bucket = '') AS of_priced
            FROM rated_lines
            WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')} AND ({scope:String} = '' OR scope = {scope:String})
              AND key IN (
    SELECT argMax(if(c.kind = 'rated', c.key, toUInt128(0)), c.rank) FROM period_commits AS c
    WHERE c.begin >= {from:DateTime('UTC')} AND c.begin < {to:DateTime('UTC')} AND ({scope:String} = '' OR c.scope = {scope:String})
      AND c.run_id NOT IN (SELECT run_id FROM void_attempts)
      AND ({closed:UInt32} = 0 OR c.key IN (SELECT m.key FROM month_commits AS m WHERE m.month = {month:Date} AND m.closed = {closed:UInt32} AND m.kind = 'commit'))
    GROUP BY c.scope, c.begin
    HAVING argMax(toString(c.currency), c.rank) = {currency:String})
            GROUP BY scope, resource) AS l
        LEFT JOIN (
            SELECT toString(v.port_uuid) AS port, any(v.instance_uuid) AS instance_uuid FROM port_volume_hourly AS v
            WHERE v.bucket >= {from:DateTime('UTC')} AND v.bucket < {to:DateTime('UTC')}
            GROUP BY port) AS p ON p.port = l.resource
        LEFT JOIN (
            SELECT n.resource AS resource, max(toUUIDOrZero(n.attributes['instance_uuid'])) AS instance_uuid FROM rated_lines AS n
            WHERE n.begin >= {from:DateTime('UTC')} AND n.begin < {to:DateTime('UTC')} AND ({scope:String} = '' OR n.scope = {scope:String})
              AND (SELECT count() = 0 OR min(bucket) > {from:DateTime('UTC')} FROM port_volume_hourly)
            GROUP BY resource) AS a ON a.resource = l.resource)
    GROUP BY instance, scope)
WHERE shown OR row = 1
ORDER BY shown DESC, price DESC, instance, scope LIMIT {limit:UInt32}
