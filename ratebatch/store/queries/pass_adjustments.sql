-- name:    pass_adjustments
-- purpose: The periods of an attempt in which an account of volume tiers enters another tier: what came before in the month gets its price.
-- params:  run_id UUID, metric String
-- reads:   pass_carries of the attempt; VOLUME is of the column tariff
SELECT c.region, c.scope, c.begin, c.account, c.tariff, c.first_tier, c.last_tier, c.carry_in, p.revision
FROM (SELECT * FROM pass_carries WHERE run_id = {run_id:UUID} AND metric = {metric:String}) AS c
INNER JOIN (SELECT scope, begin, revision FROM pass_periods WHERE run_id = {run_id:UUID}) AS p ON c.scope = p.scope AND c.begin = p.begin
WHERE c.first_tier != c.last_tier AND c.carry_in > 0 AND (/* VOLUME */)
ORDER BY c.scope, c.begin, c.account
