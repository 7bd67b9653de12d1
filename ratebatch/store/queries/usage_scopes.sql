-- name:    usage_scopes
-- purpose: Which scopes have usage in which region, and from when on, as far as the hourly tiers hold it.
-- params:  since DateTime('UTC')   only usage from here on: the start of the earliest open month
-- reads:   the three hourly tiers, three narrow columns each; repeats do not matter to a minimum
SELECT if(project_id = '', 'unattributed', project_id) AS scope, region, min(bucket) AS first_usage
FROM (
    SELECT project_id, region, bucket FROM instance_metrics_hourly WHERE bucket >= {since:DateTime('UTC')}
    UNION ALL SELECT project_id, region, bucket FROM port_volume_hourly WHERE bucket >= {since:DateTime('UTC')}
    UNION ALL SELECT project_id, region, bucket FROM disk_metrics_hourly WHERE bucket >= {since:DateTime('UTC')})
GROUP BY scope, region
ORDER BY scope, region
