-- name:    web_disk_raw
-- purpose: Rates per second of each device of one instance, one row per sample.
-- params:  region String, instance UUID, project String ('' for any), from, to DateTime('UTC')
-- reads:   disk_samples of the instance
-- why:     FINAL drops repeats; the key reaches few granules of one instance.
SELECT toString(device) AS resource, toDateTime(ts, 'UTC') AS at, round(sum(toFloat64(read_bytes)) / sum(toFloat64(ts) - toFloat64(begin)), 3) AS read_bytes_rate, round(sum(toFloat64(write_bytes)) / sum(toFloat64(ts) - toFloat64(begin)), 3) AS write_bytes_rate, round(sum(toFloat64(read_requests)) / sum(toFloat64(ts) - toFloat64(begin)), 3) AS read_requests_rate, round(sum(toFloat64(write_requests)) / sum(toFloat64(ts) - toFloat64(begin)), 3) AS write_requests_rate
FROM disk_samples FINAL
WHERE region = {region:String} AND instance_uuid = {instance:UUID} AND ({project:String} = '' OR project_id = {project:String}) AND ts > {from:DateTime('UTC')} AND ts <= {to:DateTime('UTC')} AND begin < ts
GROUP BY resource, at ORDER BY at, resource
