-- name:    web_instances_by_id
-- purpose: Instances as they were seen last.
-- params:  ids Array(UUID), project String ('' for any)
-- reads:   instances, by a list of ids
SELECT region, instance_uuid, argMax(instance_name, seen) AS name, argMax(toString(project_id), seen) AS project, argMax(toString(user_id), seen) AS user, argMax(toString(flavor_name), seen) AS flavor,
       argMax(vcpus, seen) AS cpus, argMax(toString(image_id), seen) AS image, min(i.seen_from) AS first_seen, max(i.seen_to) AS last_seen
FROM (SELECT *, (seen_to, seen_from) AS seen FROM instances WHERE instance_uuid IN {ids:Array(UUID)} AND ({project:String} = '' OR project_id = {project:String})) AS i
GROUP BY region, instance_uuid ORDER BY region, instance_uuid
