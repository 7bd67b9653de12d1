-- name:    tier_views
-- purpose: The refreshable views that fill the tiers: whether they run, when each was done last, and what stopped it.
-- reads:   system.view_refreshes, a few rows
SELECT view, toString(status) AS status, ifNull(toDateTime(last_success_time), toDateTime(0, 'UTC')) AS last_success, exception
FROM system.view_refreshes WHERE database = currentDatabase() AND view LIKE '%_refresh'
ORDER BY view
