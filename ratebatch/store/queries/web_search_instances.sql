-- name:    web_search_instances
-- purpose: Instances whose name or id has the text in it, as they were seen last.
-- params:  text String (lower case), project String ('' for any), limit UInt32
-- reads:   instances, whole
SELECT region, instance_uuid, argMax(instance_name, seen) AS name, argMax(toString(project_id), seen) AS project, argMax(toString(user_id), seen) AS user, argMax(toString(flavor_name), seen) AS flavor,
       argMax(vcpus, seen) AS cpus, argMax(toString(image_id), seen) AS image, min(i.seen_from) AS first_seen, max(i.seen_to) AS last_seen
FROM (
    SELECT *, (seen_to, seen_from) AS seen FROM instances
    WHERE ({project:String} = '' OR project_id = {project:String})
      AND (positionCaseInsensitiveUTF8(instance_name, {text:String}) > 0 OR position(toString(instance_uuid), {text:String}) > 0)) AS i
GROUP BY region, instance_uuid
ORDER BY lowerUTF8(name) = {text:String} DESC, length(name), name, instance_uuid LIMIT {limit:UInt32}
