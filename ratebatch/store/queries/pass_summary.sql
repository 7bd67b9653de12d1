-- name:    pass_summary
-- purpose: How much an attempt has to rate.
-- params:  run_id UUID
-- reads:   pass_periods of the attempt
SELECT countIf(NOT p.lost) AS periods, uniqExact(p.scope) AS scopes, sumIf(p.usage_rows, NOT p.lost) AS usage_rows, countIf(p.usage_rows != p.usage_keys) AS repeated,
       min(p.revision) AS lowest_revision, max(p.revision) AS highest_revision, countIf(p.lost) AS lost,
       toUInt8(least(getSetting('max_threads'), 8)) AS threads
FROM pass_periods AS p WHERE run_id = {run_id:UUID}
