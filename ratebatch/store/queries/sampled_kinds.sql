-- name:    sampled_kinds
-- purpose: The kinds of raw samples that there are any of.
-- reads:   the number of rows of the raw tables, which the engine knows without reading them
SELECT 'instance' AS kind WHERE (SELECT count() FROM instance_samples) > 0
UNION ALL SELECT 'port' WHERE (SELECT count() FROM port_samples) > 0
UNION ALL SELECT 'disk' WHERE (SELECT count() FROM disk_samples) > 0
