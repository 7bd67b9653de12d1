-- name:    web_disk_5min
-- purpose: Rates per second of each device of one instance, one row per bucket, over the time that was observed.
-- params:  region String, instance UUID, project String ('' for any), from, to DateTime('UTC')
-- reads:   disk_metrics_5min of the instance
-- why:     FINAL drops repeats; the key reaches few granules of one instance.
SELECT toString(device) AS resource, bucket AS at, round(sum(toFloat64(read_bytes)) / sum(toFloat64(covered_seconds)), 3) AS read_bytes_rate, round(sum(toFloat64(write_bytes)) / sum(toFloat64(covered_seconds)), 3) AS write_bytes_rate, round(sum(toFloat64(read_requests)) / sum(toFloat64(covered_seconds)), 3) AS read_requests_rate, round(sum(toFloat64(write_requests)) / sum(toFloat64(covered_seconds)), 3) AS write_requests_rate
FROM disk_metrics_5min FINAL
WHERE region = {region:String} AND instance_uuid = {instance:UUID} AND ({project:String} = '' OR project_id = {project:String}) AND bucket >= {from:DateTime('UTC')} AND bucket < {to:DateTime('UTC')} AND covered_seconds > 0
GROUP BY resource, at ORDER BY at, resource
