-- name:    web_node_port_5min
-- purpose: Rates per second of all instances of a host, one row per bucket.
-- params:  ids Array(UUID), region String, host String, project String ('' for any), from, to DateTime('UTC')
-- reads:   port_volume_5min of the host's instances
-- why:     no key begins with host, so web_node_seen says which instances to look at.
--          Of rows with one key the fullest counts, then the newest: LIMIT 1 BY picks it among the few rows of these instances, where FINAL
--          would merge the granules around them, and argMax over so many columns costs as much again. A row's host is looked at after that.
SELECT at, round(sum(rx_bytes_of), 3) AS rx_bytes_rate, round(sum(tx_bytes_of), 3) AS tx_bytes_rate
FROM (
    SELECT bucket AS at, instance_uuid, port_uuid, sum(toFloat64(rx_bytes)) / sum(toFloat64(covered_seconds)) AS rx_bytes_of, sum(toFloat64(tx_bytes)) / sum(toFloat64(covered_seconds)) AS tx_bytes_of
    FROM (
        SELECT bucket, instance_uuid, port_uuid, host, covered_seconds, rx_bytes, tx_bytes
        FROM port_volume_5min
        WHERE region = {region:String} AND ({project:String} = '' OR project_id = {project:String}) AND bucket >= {from:DateTime('UTC')} AND bucket < {to:DateTime('UTC')} AND instance_uuid IN {ids:Array(UUID)}
        ORDER BY samples DESC, refreshed_at DESC
        LIMIT 1 BY instance_uuid, port_uuid, bucket, network_uuid, project_id, user_id, flavor_name, vcpus, image_id)
    WHERE host = {host:String} AND covered_seconds > 0
    GROUP BY at, instance_uuid, port_uuid)
GROUP BY at ORDER BY at
