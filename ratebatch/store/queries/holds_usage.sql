-- name:    holds_usage
-- purpose: Whether there is any sample or any row of a tier.
-- reads:   one row of each table that has one
SELECT count() > 0 FROM (SELECT 1 FROM (SELECT 1 FROM port_samples LIMIT 1)
    UNION ALL SELECT 1 FROM (SELECT 1 FROM instance_samples LIMIT 1)
    UNION ALL SELECT 1 FROM (SELECT 1 FROM disk_samples LIMIT 1)
    UNION ALL SELECT 1 FROM (SELECT 1 FROM port_volume_5min LIMIT 1)
    UNION ALL SELECT 1 FROM (SELECT 1 FROM instance_metrics_5min LIMIT 1)
    UNION ALL SELECT 1 FROM (SELECT 1 FROM disk_metrics_5min LIMIT 1)
    UNION ALL SELECT 1 FROM (SELECT 1 FROM port_volume_hourly LIMIT 1)
    UNION ALL SELECT 1 FROM (SELECT 1 FROM instance_metrics_hourly LIMIT 1)
    UNION ALL SELECT 1 FROM (SELECT 1 FROM disk_metrics_hourly LIMIT 1))
