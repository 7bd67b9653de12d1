-- name:    due_bounds
-- purpose: Of [from, to), how many periods are due and when the first and the last of them begin.
-- params:  from, to DateTime('UTC'), period UInt32 (seconds), closed Array(Date), metrics_digest String, as due_periods
-- reads:   due_periods of [from, to), a day as a rule
-- why:     an hourly run finds one hour of a day due; it need not read the others' usage, nor cut the day for their sake.
SELECT count() AS periods, min(d.begin) AS first, max(d.begin) AS last
FROM (/* query due_periods */) AS d
