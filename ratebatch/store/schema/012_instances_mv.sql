-- table:   instances_mv
-- purpose: Fills instances from each insert of instance samples; repeats only widen a time span that holds them.
CREATE MATERIALIZED VIEW IF NOT EXISTS {{view "instances_mv"}} TO {{local "instances"}} AS
SELECT region, instance_uuid, project_id, user_id, flavor_name, vcpus, image_id, instance_name,
       min(toDateTime(begin, 'UTC')) AS seen_from, max(toDateTime(ts, 'UTC')) AS seen_to
FROM {{local "instance_samples"}}
GROUP BY region, instance_uuid, project_id, user_id, flavor_name, vcpus, image_id, instance_name
