-- name:    web_node_seen
-- purpose: The instances that were on a host in a window, so that others read only their rows.
-- params:  region String, host String, project String ('' for any), from, to DateTime('UTC')
-- reads:   the column host of instance_metrics_hourly in the window
-- why:     no key begins with host; of all tables with one the hourly tier is the smallest. An instance that stayed on the host for
--          less than an hour may be missed. It is asked once, since as a subquery it would run again at each of its places.
SELECT DISTINCT instance_uuid FROM instance_metrics_hourly
WHERE region = {region:String} AND host = {host:String} AND ({project:String} = '' OR project_id = {project:String})
  AND bucket >= toStartOfHour({from:DateTime('UTC')}) AND bucket < {to:DateTime('UTC')}
ORDER BY instance_uuid
