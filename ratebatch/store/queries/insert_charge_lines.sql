-- name:    insert_charge_lines
-- purpose: The line that brings a month up to its minimum or down to its cap, where it is below or above.
-- params:  run_id UUID, period UInt32, last DateTime('UTC') (begin of the month's last period), currency String,
--          minimum_ids, minimum_scopes, minimum_amounts, cap_ids, cap_scopes, cap_amounts: Arrays of String, the general one under scope ''
-- reads:   pass_carries and pass_periods of the attempt
-- why:     the quantity is money and its unit price 1, or -1 for what is above the cap.
INSERT INTO rated_lines (run_id, region, scope, begin, end, metric, resource, attributes, unit, qty, price, rule, bucket, part, revision)
SELECT {run_id:UUID}, '', scope, begin, begin + {period:UInt32}, if(is_minimum, 'minimum', 'cap'), '', CAST(map(), 'Map(LowCardinality(String), String)'), {currency:String},
       abs(difference), difference, if(is_minimum, {minimum_ids:Array(String)}[least_at], {cap_ids:Array(String)}[most_at]), '', toUInt16(if(is_minimum, 60002, 60003)), revision
FROM (
    SELECT c.scope AS scope, c.begin AS begin, p.revision AS revision, c.carry_in + c.used AS came_to,
           if(has({minimum_scopes:Array(String)}, c.scope), indexOf({minimum_scopes:Array(String)}, c.scope), indexOf({minimum_scopes:Array(String)}, '')) AS least_at,
           if(has({cap_scopes:Array(String)}, c.scope), indexOf({cap_scopes:Array(String)}, c.scope), indexOf({cap_scopes:Array(String)}, '')) AS most_at,
           toDecimal128(if(least_at = 0, '0', {minimum_amounts:Array(String)}[least_at]), 18) AS least_amount,
           toDecimal128(if(most_at = 0, '0', {cap_amounts:Array(String)}[most_at]), 18) AS most_amount,
           least_at > 0 AND came_to < least_amount AS is_minimum,
           multiIf(is_minimum, least_amount - came_to, most_at > 0 AND came_to > most_amount, most_amount - came_to, toDecimal128(0, 18)) AS difference
    FROM (SELECT toString(scope) AS scope, begin, carry_in, used FROM pass_carries WHERE run_id = {run_id:UUID} AND account = '(charged)' AND begin = {last:DateTime('UTC')}) AS c
    INNER JOIN (SELECT scope, begin, revision FROM pass_periods WHERE run_id = {run_id:UUID}) AS p ON c.scope = p.scope AND c.begin = p.begin)
WHERE difference != 0
