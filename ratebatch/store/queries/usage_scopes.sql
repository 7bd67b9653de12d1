-- name:    usage_scopes
-- purpose: Which scopes have usage in which region and month (UTC), and from when on.
-- params:  since DateTime('UTC')   only usage from here on: the start of the earliest open month
--          known Array(Date)       months that need not be read of tiers; their rows are left out of ROWS
-- reads:   for ROWS three narrow columns of each table that a metric reads; repeats do not matter to a minimum
SELECT toDate(toStartOfMonth(bucket)) AS month, tier, scope, region, min(bucket) AS first_usage
FROM (/* ROWS */)
WHERE bucket >= {since:DateTime('UTC')}
GROUP BY month, tier, scope, region
