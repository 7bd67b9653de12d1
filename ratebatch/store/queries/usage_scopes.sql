-- name:    usage_scopes
-- purpose: Which scopes have usage in which region, and from when on.
-- params:  since DateTime('UTC')   only usage from here on: the start of the earliest open month
-- reads:   for ROWS three narrow columns of each table that a metric reads; repeats do not matter to a minimum
SELECT scope, region, min(bucket) AS first_usage
FROM (/* ROWS */)
WHERE bucket >= {since:DateTime('UTC')}
GROUP BY scope, region
ORDER BY scope, region
