-- name:    web_port_hourly
-- purpose: Rates per second of each port of one instance, one row per bucket, over the time that was observed.
-- params:  region String, instance UUID, project String ('' for any), from, to DateTime('UTC')
-- reads:   port_volume_hourly of the instance
-- why:     FINAL drops repeats; the key reaches few granules of one instance.
SELECT toString(port_uuid) AS resource, bucket AS at, round(sum(toFloat64(rx_bytes)) / sum(toFloat64(covered_seconds)), 3) AS rx_bytes_rate, round(sum(toFloat64(tx_bytes)) / sum(toFloat64(covered_seconds)), 3) AS tx_bytes_rate
FROM port_volume_hourly FINAL
WHERE region = {region:String} AND instance_uuid = {instance:UUID} AND ({project:String} = '' OR project_id = {project:String}) AND bucket >= {from:DateTime('UTC')} AND bucket < {to:DateTime('UTC')} AND covered_seconds > 0
GROUP BY resource, at ORDER BY at, resource
