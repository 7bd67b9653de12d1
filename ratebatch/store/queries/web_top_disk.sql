-- name:    web_top_disk
-- purpose: The instances with the most of: bytes read and written.
-- params:  project String ('' for any), from, to DateTime('UTC'), limit UInt32
-- reads:   disk_metrics_hourly of the window
-- why:     hours are partitions of a day, and a row's key holds its hour, so FINAL need not look across partitions.
SELECT region, instance_uuid, round(toFloat64(sum(read_bytes + write_bytes)), 3) AS value
FROM disk_metrics_hourly FINAL
WHERE bucket >= {from:DateTime('UTC')} AND bucket < {to:DateTime('UTC')} AND covered_seconds > 0 AND ({project:String} = '' OR project_id = {project:String})
GROUP BY region, instance_uuid
ORDER BY value DESC, instance_uuid LIMIT {limit:UInt32}
SETTINGS do_not_merge_across_partitions_select_final = 1
