-- name:    web_port_raw
-- purpose: Rates per second of each port of one instance, one row per sample.
-- params:  region String, instance UUID, project String ('' for any), from, to DateTime('UTC')
-- reads:   port_samples of the instance
-- why:     FINAL drops repeats; the key reaches few granules of one instance.
SELECT toString(port_uuid) AS resource, toDateTime(ts, 'UTC') AS at, round(sum(toFloat64(rx_bytes)) / sum(toFloat64(ts) - toFloat64(begin)), 3) AS rx_bytes_rate, round(sum(toFloat64(tx_bytes)) / sum(toFloat64(ts) - toFloat64(begin)), 3) AS tx_bytes_rate
FROM port_samples FINAL
WHERE region = {region:String} AND instance_uuid = {instance:UUID} AND ({project:String} = '' OR project_id = {project:String}) AND ts > {from:DateTime('UTC')} AND ts <= {to:DateTime('UTC')} AND begin < ts
GROUP BY resource, at ORDER BY at, resource
