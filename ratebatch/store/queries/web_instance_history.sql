-- name:    web_instance_history
-- purpose: What one instance was, by time, the newest first.
-- params:  instance UUID, project String ('' for any)
-- reads:   instances, the rows of one instance
SELECT region, instance_uuid, instance_name, toString(project_id), toString(user_id), toString(flavor_name), vcpus, toString(image_id), min(i.seen_from) AS first_seen, max(i.seen_to) AS last_seen
FROM instances AS i
WHERE instance_uuid = {instance:UUID} AND ({project:String} = '' OR project_id = {project:String})
GROUP BY region, instance_uuid, instance_name, project_id, user_id, flavor_name, vcpus, image_id
ORDER BY last_seen DESC, first_seen DESC LIMIT 500
