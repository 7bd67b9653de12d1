-- name:    web_node_disk_raw
-- purpose: Rates per second of all instances of a host, one row per two minutes.
-- params:  region String, host String, project String ('' for any), from, to DateTime('UTC')
-- reads:   disk_samples of the host's instances
-- why:     no key begins with host, so the hourly tier says which instances to look at: an instance that stayed on the host for less than an hour may be missed.
--          Agents do not poll at the same moment; two minutes hold a sample of everyone who polls every minute. Repeats of a sample say
--          the same, so any of them counts; FINAL would merge the granules around instances that lie scattered.
SELECT at, round(sum(read_bytes_of), 3) AS read_bytes_rate, round(sum(write_bytes_of), 3) AS write_bytes_rate, round(sum(read_requests_of), 3) AS read_requests_rate, round(sum(write_requests_of), 3) AS write_requests_rate
FROM (
    SELECT toStartOfInterval(toDateTime(ts, 'UTC'), INTERVAL 2 MINUTE) AS at, instance_uuid, device, sum(toFloat64(read_bytes)) / sum(toFloat64(ts) - toFloat64(begin)) AS read_bytes_of, sum(toFloat64(write_bytes)) / sum(toFloat64(ts) - toFloat64(begin)) AS write_bytes_of, sum(toFloat64(read_requests)) / sum(toFloat64(ts) - toFloat64(begin)) AS read_requests_of, sum(toFloat64(write_requests)) / sum(toFloat64(ts) - toFloat64(begin)) AS write_requests_of
    FROM (
        SELECT instance_uuid, device, begin, ts, read_bytes, write_bytes, read_requests, write_requests
        FROM disk_samples
        WHERE region = {region:String} AND host = {host:String} AND ({project:String} = '' OR project_id = {project:String}) AND ts > {from:DateTime('UTC')} AND ts <= {to:DateTime('UTC')} AND begin < ts AND instance_uuid IN (
            SELECT h.instance_uuid FROM instance_metrics_hourly AS h
            WHERE h.region = {region:String} AND h.host = {host:String} AND h.bucket >= toStartOfHour({from:DateTime('UTC')}) AND h.bucket < {to:DateTime('UTC')})
        LIMIT 1 BY instance_uuid, device, ts, epoch, sequence)
    GROUP BY at, instance_uuid, device)
GROUP BY at ORDER BY at
