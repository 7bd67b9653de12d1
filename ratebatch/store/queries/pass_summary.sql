-- name:    pass_summary
-- purpose: How much an attempt has to rate.
-- params:  run_id UUID
-- reads:   pass_periods of the attempt
SELECT count() AS periods, uniqExact(p.scope) AS scopes, sum(p.usage_rows) AS usage_rows, countIf(p.usage_rows != p.usage_keys) AS repeated,
       min(p.revision) AS lowest_revision, max(p.revision) AS highest_revision
FROM pass_periods AS p WHERE run_id = {run_id:UUID}
