-- name:    web_cpu_5min
-- purpose: CPU and memory of one instance, one row per bucket.
-- params:  region String, instance UUID, project String ('' for any), from, to DateTime('UTC')
-- reads:   instance_metrics_5min of the instance
-- why:     FINAL drops repeats; the key reaches few granules of one instance. A resize gives a bucket two rows, weighted by their time.
SELECT bucket AS at, round(sum(toFloat64(cpu_pct_avg) * toFloat64(covered_seconds)) / sum(toFloat64(covered_seconds)), 3) AS cpu_avg, toFloat64(max(cpu_pct_max)) AS cpu_max,
       toFloat64(max(memory_actual_bytes_avg)) AS memory_actual, toFloat64(max(memory_rss_bytes_avg)) AS memory_rss, toFloat64(max(memory_usable_bytes_avg)) AS memory_usable
FROM instance_metrics_5min FINAL
WHERE region = {region:String} AND instance_uuid = {instance:UUID} AND ({project:String} = '' OR project_id = {project:String}) AND bucket >= {from:DateTime('UTC')} AND bucket < {to:DateTime('UTC')} AND covered_seconds > 0
GROUP BY at ORDER BY at
