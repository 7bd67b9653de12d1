-- name:    lost_periods
-- purpose: The periods of an attempt that have fewer usage rows than were committed.
-- params:  run_id UUID
-- reads:   pass_periods of the attempt
SELECT p.scope AS scope, p.begin AS begin, p.end AS end FROM pass_periods AS p WHERE p.run_id = {run_id:UUID} AND p.lost ORDER BY scope, begin
