-- name:    pass_summary
-- purpose: How much an attempt has to rate.
-- params:  run_id UUID
-- reads:   pass_periods of the attempt
SELECT count() AS periods, uniqExact(scope) AS scopes, sum(usage_rows) AS usage_rows, sum(usage_rows != usage_keys) AS repeated,
       min(revision) AS lowest_revision, max(revision) AS highest_revision
FROM pass_periods WHERE run_id = {run_id:UUID}
