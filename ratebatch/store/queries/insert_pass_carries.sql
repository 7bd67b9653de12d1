-- name:    insert_pass_carries
-- purpose: For each period of an attempt and each account that its usage draws on: what was added up in the month before, what
--          the period adds, and which tiers that touches.
-- params:  run_id UUID, metric String, from, to DateTime('UTC'), period UInt32, month_from DateTime('UTC') (of the month that from lies in),
--          zone String (that months begin in)
-- reads:   the usage of one metric with its slots (for TIERED: scope, begin, account_, t_, qty, region), period_commits from month_from on of
--          the attempt's scopes; EDGES and VOLUME are of the column tariff
-- why:     what came before is the sum over current commits, those of the attempt's own periods replaced by its usage, so that
--          any order of rating gives the same. Sums are exact; one of 1e20 or more stops the statement. A period that ends exactly at an
--          edge crosses it too: what follows there without adding anything (0 or less) lies in the next tier.
INSERT INTO pass_carries (run_id, metric, scope, begin, account, tariff, carry_in, used, first_tier, last_tier, crosses, region)
SELECT {run_id:UUID}, {metric:String}, scope, begin, account, tariff, carry, uses, first_touched, last_touched, NOT is_volume AND first_touched != next_touched, first_region
FROM (
    SELECT scope, begin, account, tariff, carry, uses, first_region, is_volume,
           toUInt16(1 + if(is_volume, arrayCount(e -> e < raw_carry, edges), arrayCount(e -> e <= raw_carry, edges))) AS first_touched,
           toUInt16(1 + arrayCount(e -> e <= raw_reached, edges)) AS next_touched,
           toUInt16(if(raw_uses = 0, if(is_volume, 1 + arrayCount(e -> e < raw_carry, edges), first_touched), 1 + arrayCount(e -> e < raw_reached, edges))) AS last_touched
    FROM (
        SELECT scope, begin, account, tariff, first_region, toDecimal128(total_before, 18) AS carry, toDecimal128(adds, 18) AS uses,
               reinterpretAsInt128(carry) AS raw_carry, reinterpretAsInt128(uses) AS raw_uses,
               reinterpretAsInt128(toDecimal128(total_before + adds, 18)) AS raw_reached, /* VOLUME */ AS is_volume, /* EDGES */ AS edges
        FROM (
            SELECT scope, begin, account, tariff, adds, first_region, mine,
                   sum(adds) OVER (PARTITION BY scope, account, toStartOfMonth(begin, {zone:String}) ORDER BY begin
                                   ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) - adds AS total_before
            FROM (
                SELECT scope, begin, account_ AS account, toUInt32(t_) AS tariff, sum(toDecimal256(greatest(qty, toDecimal128(0, 18)), 18)) AS adds,
                       min(toString(region)) AS first_region, true AS mine
                FROM (/* TIERED */)
                GROUP BY scope, begin, account, tariff
                UNION ALL
                SELECT scope, begin, toString(pair.1) AS account, toUInt32(0) AS tariff, toDecimal256(pair.2, 18) AS adds, '' AS first_region, false AS mine
                FROM (
                    SELECT p.scope AS scope, p.begin AS begin, argMax(p.used, p.rank) AS of_used, argMax(p.kind, p.rank) AS of_kind
                    FROM period_commits AS p
                    WHERE p.begin >= {month_from:DateTime('UTC')} AND p.begin < {to:DateTime('UTC')} AND p.run_id NOT IN (SELECT run_id FROM void_attempts)
                      AND p.scope IN (SELECT q.scope FROM pass_periods AS q WHERE q.run_id = {run_id:UUID})
                      AND (p.scope, p.begin) NOT IN (SELECT q.scope, q.begin FROM pass_periods AS q WHERE q.run_id = {run_id:UUID} AND NOT q.lost)
                    GROUP BY p.scope, p.begin)
                ARRAY JOIN CAST(of_used, 'Array(Tuple(String, Decimal(38, 18)))') AS pair
                WHERE of_kind = 'rated' AND (pair.1 = {metric:String} OR startsWith(pair.1, concat({metric:String}, '/')))))
        WHERE mine))
