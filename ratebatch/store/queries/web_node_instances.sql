-- name:    web_node_instances
-- purpose: The instances of a host and what each used in a window.
-- params:  ids Array(UUID), region String, host String, project String ('' for any), from, to DateTime('UTC')   whole hours
-- reads:   the hourly tiers, of the instances that web_node_seen found
-- why:     LIMIT 1 BY picks the fullest and then the newest row of each key among the few rows of these instances; FINAL would look at
--          every instance's. A row's host is looked at after that.
WITH on_host AS (
    SELECT h.instance_uuid AS instance_uuid, argMax(h.instance_name, h.bucket) AS name, argMax(h.project_id, h.bucket) AS project_id, argMax(h.user_id, h.bucket) AS user_id,
           argMax(h.flavor_name, h.bucket) AS flavor_name, argMax(h.vcpus, h.bucket) AS vcpus, argMax(h.image_id, h.bucket) AS image_id,
           min(h.bucket) AS first_seen, max(h.bucket) + 3600 AS last_seen,
           sum(toFloat64(cpu_pct_avg) * toFloat64(covered_seconds)) / sum(toFloat64(covered_seconds)) AS cpu,
           avgIf(toFloat64(memory_actual_bytes_avg), memory_actual_bytes_avg IS NOT NULL) AS memory
    FROM (
        SELECT instance_uuid, bucket, instance_name, project_id, user_id, flavor_name, vcpus, image_id, host, covered_seconds, cpu_pct_avg, memory_actual_bytes_avg
        FROM instance_metrics_hourly
        WHERE region = {region:String} AND ({project:String} = '' OR project_id = {project:String}) AND bucket >= {from:DateTime('UTC')} AND bucket < {to:DateTime('UTC')} AND instance_uuid IN {ids:Array(UUID)}
        ORDER BY samples DESC, refreshed_at DESC
        LIMIT 1 BY instance_uuid, bucket, project_id, user_id, flavor_name, vcpus, image_id) AS h
    WHERE h.host = {host:String} AND covered_seconds > 0
    GROUP BY instance_uuid)
SELECT i.instance_uuid, i.name, toString(i.project_id), toString(i.user_id), toString(i.flavor_name), i.vcpus, toString(i.image_id), i.first_seen, i.last_seen,
       round(i.cpu, 3), if(isNaN(i.memory), NULL, round(i.memory)), ifNull(p.bytes, 0), ifNull(d.bytes, 0)
FROM on_host AS i
LEFT JOIN (
    SELECT instance_uuid, sum(rx_bytes + tx_bytes) AS bytes FROM (
        SELECT instance_uuid, host, rx_bytes, tx_bytes FROM port_volume_hourly
        WHERE region = {region:String} AND ({project:String} = '' OR project_id = {project:String}) AND bucket >= {from:DateTime('UTC')} AND bucket < {to:DateTime('UTC')} AND instance_uuid IN {ids:Array(UUID)}
        ORDER BY samples DESC, refreshed_at DESC
        LIMIT 1 BY instance_uuid, port_uuid, bucket, network_uuid, project_id, user_id, flavor_name, vcpus, image_id)
    WHERE host = {host:String}
    GROUP BY instance_uuid) AS p ON p.instance_uuid = i.instance_uuid
LEFT JOIN (
    SELECT instance_uuid, sum(read_bytes + write_bytes) AS bytes FROM (
        SELECT instance_uuid, host, read_bytes, write_bytes FROM disk_metrics_hourly
        WHERE region = {region:String} AND ({project:String} = '' OR project_id = {project:String}) AND bucket >= {from:DateTime('UTC')} AND bucket < {to:DateTime('UTC')} AND instance_uuid IN {ids:Array(UUID)}
        ORDER BY samples DESC, refreshed_at DESC
        LIMIT 1 BY instance_uuid, device, bucket, project_id, user_id, flavor_name, vcpus, image_id)
    WHERE host = {host:String}
    GROUP BY instance_uuid) AS d ON d.instance_uuid = i.instance_uuid
ORDER BY i.name, i.instance_uuid
