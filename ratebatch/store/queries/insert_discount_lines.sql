-- name:    insert_discount_lines
-- purpose: One line for each period, region and metric of an attempt that a discount applies to: its quantity is what the usage
--          costs, its unit price the percentage.
-- params:  run_id UUID, from, to DateTime('UTC'), period UInt32
-- reads:   rated_lines of the attempt, pass_periods; DISCOUNTS stands for rows (from, to, metric, scope, id, rate, currency) as a constant, the most
--          specific first
-- why:     rounded once per line, half-even. What crossing a volume tier changes about a metric is discounted with it.
INSERT INTO rated_lines (run_id, region, scope, begin, end, metric, resource, attributes, unit, qty, price, rule, bucket, part, revision)
WITH (/* DISCOUNTS */) AS discounts
SELECT {run_id:UUID}, l.region, l.scope, l.begin, l.begin + {period:UInt32}, 'discount', '', CAST(map('metric', l.of_metric), 'Map(LowCardinality(String), String)'), l.d.7,
       toDecimal128(l.amount, 18), toDecimal128(roundBankers(l.amount * toDecimal256(l.d.6, 18), 18), 18), l.d.5, '', toUInt16(60001), r.revision
FROM (
    SELECT region, g.scope AS scope, begin, of_metric, amount,
           arrayFirst(d -> d.1 <= begin AND begin < d.2 AND (d.3 = '' OR d.3 = of_metric) AND (d.4 = '' OR d.4 = g.scope),
                      arrayConcat(own.list, arrayFilter(d -> d.4 = '', discounts))) AS d
    FROM (
        SELECT region, toString(scope) AS scope, begin, if(metric = 'adjustment', attributes['metric'], toString(metric)) AS of_metric, sum(toDecimal256(price, 18)) AS amount
        FROM rated_lines
        WHERE run_id = {run_id:UUID} AND begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')} AND bucket = ''
        GROUP BY region, scope, begin, of_metric HAVING amount != 0) AS g
    LEFT JOIN (SELECT x.4 AS scope, groupArray(x) AS list FROM (SELECT arrayJoin(discounts) AS x) WHERE x.4 != '' GROUP BY scope) AS own ON g.scope = own.scope) AS l
INNER JOIN (SELECT scope, begin, revision FROM pass_periods WHERE run_id = {run_id:UUID}) AS r ON l.scope = r.scope AND l.begin = r.begin
WHERE l.d.5 != ''
