-- name:    web_top_memory
-- purpose: The instances with the most of: memory, on average over the time it was observed.
-- params:  project String ('' for any), from, to DateTime('UTC'), limit UInt32
-- reads:   instance_metrics_hourly of the window
-- why:     hours are partitions of a day, and a row's key holds its hour, so FINAL need not look across partitions.
SELECT region, instance_uuid, round(sum(toFloat64(memory_actual_byte_seconds)) / sum(toFloat64(covered_seconds)), 3) AS value
FROM instance_metrics_hourly FINAL
WHERE bucket >= {from:DateTime('UTC')} AND bucket < {to:DateTime('UTC')} AND covered_seconds > 0 AND ({project:String} = '' OR project_id = {project:String})
GROUP BY region, instance_uuid
ORDER BY value DESC, instance_uuid LIMIT {limit:UInt32}
SETTINGS do_not_merge_across_partitions_select_final = 1
