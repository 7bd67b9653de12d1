-- name:    web_instance_host
-- purpose: The host that an instance was seen on last, while it was a project's if one is named.
-- params:  region String, instance UUID, project String ('' for any), from DateTime('UTC')
-- reads:   instance_metrics_hourly of the instance
SELECT argMax(toString(host), (bucket, refreshed_at)) AS host FROM instance_metrics_hourly
WHERE region = {region:String} AND instance_uuid = {instance:UUID} AND ({project:String} = '' OR project_id = {project:String}) AND bucket >= {from:DateTime('UTC')}
