-- name:    rollup_rows
-- purpose: How many rows each tier holds for a window.
-- params:  from, to DateTime('UTC')    buckets that begin in [from, to)
SELECT 'port_volume_5min' AS tier, count() AS rows FROM port_volume_5min FINAL WHERE bucket >= {from:DateTime('UTC')} AND bucket < {to:DateTime('UTC')}
UNION ALL SELECT 'port_volume_hourly', count() FROM port_volume_hourly FINAL WHERE bucket >= {from:DateTime('UTC')} AND bucket < {to:DateTime('UTC')}
UNION ALL SELECT 'instance_metrics_5min', count() FROM instance_metrics_5min FINAL WHERE bucket >= {from:DateTime('UTC')} AND bucket < {to:DateTime('UTC')}
UNION ALL SELECT 'instance_metrics_hourly', count() FROM instance_metrics_hourly FINAL WHERE bucket >= {from:DateTime('UTC')} AND bucket < {to:DateTime('UTC')}
UNION ALL SELECT 'disk_metrics_5min', count() FROM disk_metrics_5min FINAL WHERE bucket >= {from:DateTime('UTC')} AND bucket < {to:DateTime('UTC')}
UNION ALL SELECT 'disk_metrics_hourly', count() FROM disk_metrics_hourly FINAL WHERE bucket >= {from:DateTime('UTC')} AND bucket < {to:DateTime('UTC')}
