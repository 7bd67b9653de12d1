-- name:    tier_rows
-- purpose: How many rows each hourly tier holds per day, repeats included: the estimate that passes are cut by.
-- params:  from, to Date
-- reads:   system.parts, no data; the tiers are partitioned by day
SELECT toDate(p.partition) AS day, replaceOne(p.table, '_local', '') AS tier, sum(p.rows) AS held
FROM system.parts AS p
WHERE p.active AND p.database = currentDatabase() AND p.table IN ('instance_metrics_hourly', 'port_volume_hourly', 'disk_metrics_hourly',
      'instance_metrics_hourly_local', 'port_volume_hourly_local', 'disk_metrics_hourly_local')
  AND toDateOrZero(p.partition) >= {from:Date} AND toDateOrZero(p.partition) < {to:Date}
GROUP BY day, tier ORDER BY day, tier
