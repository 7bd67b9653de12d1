-- name:    tier_rows
-- purpose: How many rows each hourly tier holds per day, repeats included: the estimate that passes are cut by.
-- params:  from, to Date
-- reads:   system.parts, no data; the tiers are partitioned by day
SELECT toDate(partition) AS day, sum(rows * multiIf(table LIKE 'instance%', 3, 2)) AS usage_rows
FROM system.parts
WHERE active AND database = currentDatabase() AND table IN ('instance_metrics_hourly', 'port_volume_hourly', 'disk_metrics_hourly',
      'instance_metrics_hourly_local', 'port_volume_hourly_local', 'disk_metrics_hourly_local')
  AND toDateOrZero(partition) >= {from:Date} AND toDateOrZero(partition) < {to:Date}
GROUP BY day ORDER BY day
