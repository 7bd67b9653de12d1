-- name:    web_has_usage
-- purpose: Whether there is any usage in the tiers or any commit.
-- reads:   counts of parts
SELECT toBool((SELECT count() FROM instance_metrics_hourly) + (SELECT count() FROM port_volume_hourly) + (SELECT count() FROM disk_metrics_hourly) + (SELECT count() FROM period_commits) > 0) AS usage
