-- name:    web_cpu_raw
-- purpose: CPU and memory of one instance, one row per sample.
-- params:  region String, instance UUID, project String ('' for any), from, to DateTime('UTC')
-- reads:   instance_samples of the instance
-- why:     FINAL drops repeats; the key reaches few granules of one instance.
SELECT toDateTime(ts, 'UTC') AS at, toFloat64(max(cpu_pct)) AS cpu_avg, toFloat64(max(cpu_pct)) AS cpu_max, toFloat64(max(memory_actual_bytes)) AS memory_actual,
       toFloat64(max(memory_rss_bytes)) AS memory_rss, toFloat64(max(memory_usable_bytes)) AS memory_usable
FROM instance_samples FINAL
WHERE region = {region:String} AND instance_uuid = {instance:UUID} AND ({project:String} = '' OR project_id = {project:String}) AND ts > {from:DateTime('UTC')} AND ts <= {to:DateTime('UTC')}
GROUP BY at ORDER BY at
