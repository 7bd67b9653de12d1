-- name:    last_tier_hour
-- purpose: The end of the last hour that an hourly tier holds; 1970: none holds any.
-- reads:   the bucket column of the hourly tiers, by their parts' minima and maxima
SELECT if(last = toDateTime(0, 'UTC'), last, last + INTERVAL 1 HOUR) AS last
FROM (SELECT max(bucket) AS last
      FROM (SELECT max(bucket) AS bucket FROM instance_metrics_hourly UNION ALL SELECT max(bucket) FROM port_volume_hourly UNION ALL SELECT max(bucket) FROM disk_metrics_hourly))
