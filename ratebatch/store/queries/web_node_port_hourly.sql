-- name:    web_node_port_hourly
-- purpose: Rates per second of all instances of a host, one row per bucket.
-- params:  region String, host String, project String ('' for any), from, to DateTime('UTC')
-- reads:   port_volume_hourly of the host's instances
-- why:     no key begins with host, so the hourly tier says which instances to look at: an instance that stayed on the host for less than an hour may be missed.
SELECT at, round(sum(rx_bytes_of), 3) AS rx_bytes_rate, round(sum(tx_bytes_of), 3) AS tx_bytes_rate
FROM (
    SELECT bucket AS at, instance_uuid, port_uuid, sum(toFloat64(rx_bytes)) / sum(toFloat64(covered_seconds)) AS rx_bytes_of, sum(toFloat64(tx_bytes)) / sum(toFloat64(covered_seconds)) AS tx_bytes_of
    FROM port_volume_hourly FINAL
    WHERE region = {region:String} AND host = {host:String} AND ({project:String} = '' OR project_id = {project:String}) AND bucket >= {from:DateTime('UTC')} AND bucket < {to:DateTime('UTC')} AND covered_seconds > 0 AND instance_uuid IN (
    SELECT h.instance_uuid FROM instance_metrics_hourly AS h
    WHERE h.region = {region:String} AND h.host = {host:String} AND h.bucket >= toStartOfHour({from:DateTime('UTC')}) AND h.bucket < {to:DateTime('UTC')})
    GROUP BY at, instance_uuid, port_uuid)
GROUP BY at ORDER BY at
