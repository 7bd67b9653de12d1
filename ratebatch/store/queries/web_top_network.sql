-- name:    web_top_network
-- purpose: The instances with the most of: traffic received and sent.
-- params:  project String ('' for any), from, to DateTime('UTC'), limit UInt32
-- reads:   port_volume_hourly of the window
-- why:     hours are partitions of a day, and a row's key holds its hour, so FINAL need not look across partitions.
SELECT region, instance_uuid, round(toFloat64(sum(rx_bytes + tx_bytes)), 3) AS value
FROM port_volume_hourly FINAL
WHERE bucket >= {from:DateTime('UTC')} AND bucket < {to:DateTime('UTC')} AND covered_seconds > 0 AND ({project:String} = '' OR project_id = {project:String})
GROUP BY region, instance_uuid
ORDER BY value DESC, instance_uuid LIMIT {limit:UInt32}
SETTINGS do_not_merge_across_partitions_select_final = 1
