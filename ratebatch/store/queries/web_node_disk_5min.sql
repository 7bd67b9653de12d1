-- name:    web_node_disk_5min
-- purpose: Rates per second of all instances of a host, one row per bucket.
-- params:  ids Array(UUID), region String, host String, project String ('' for any), from, to DateTime('UTC')
-- reads:   disk_metrics_5min of the host's instances
-- why:     no key begins with host, so web_node_seen says which instances to look at.
--          Of rows with one key the fullest counts, then the newest: LIMIT 1 BY picks it among the few rows of these instances, where FINAL
--          would merge the granules around them, and argMax over so many columns costs as much again. A row's host is looked at after that.
SELECT at, round(sum(read_bytes_of), 3) AS read_bytes_rate, round(sum(write_bytes_of), 3) AS write_bytes_rate, round(sum(read_requests_of), 3) AS read_requests_rate, round(sum(write_requests_of), 3) AS write_requests_rate
FROM (
    SELECT bucket AS at, instance_uuid, device, sum(toFloat64(read_bytes)) / sum(toFloat64(covered_seconds)) AS read_bytes_of, sum(toFloat64(write_bytes)) / sum(toFloat64(covered_seconds)) AS write_bytes_of, sum(toFloat64(read_requests)) / sum(toFloat64(covered_seconds)) AS read_requests_of, sum(toFloat64(write_requests)) / sum(toFloat64(covered_seconds)) AS write_requests_of
    FROM (
        SELECT bucket, instance_uuid, device, host, covered_seconds, read_bytes, write_bytes, read_requests, write_requests
        FROM disk_metrics_5min
        WHERE region = {region:String} AND ({project:String} = '' OR project_id = {project:String}) AND bucket >= {from:DateTime('UTC')} AND bucket < {to:DateTime('UTC')} AND instance_uuid IN {ids:Array(UUID)}
        ORDER BY samples DESC, refreshed_at DESC
        LIMIT 1 BY instance_uuid, device, bucket, project_id, user_id, flavor_name, vcpus, image_id)
    WHERE host = {host:String} AND covered_seconds > 0
    GROUP BY at, instance_uuid, device)
GROUP BY at ORDER BY at
