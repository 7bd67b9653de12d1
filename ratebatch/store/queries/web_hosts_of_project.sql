-- name:    web_hosts_of_project
-- purpose: Hosts that a project's instances were on lately.
-- params:  text String ('' for all), project String, from DateTime('UTC'), limit, skip UInt32
-- reads:   instance_metrics_hourly of the window
-- why:     last_sample is the end of the last hour with usage: a project does not see when a host that it left was heard of.
SELECT region, host, min(h.bucket) AS first_sample, max(h.bucket) + 3600 AS last_sample, count() OVER () AS total
FROM instance_metrics_hourly AS h
WHERE bucket >= {from:DateTime('UTC')} AND project_id = {project:String}
  AND ({text:String} = '' OR positionCaseInsensitiveUTF8(host, {text:String}) > 0)
GROUP BY region, host ORDER BY host = {text:String} DESC, region, host LIMIT {limit:UInt32} OFFSET {skip:UInt32}
