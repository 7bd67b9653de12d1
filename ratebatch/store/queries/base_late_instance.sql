-- name:    base_late_instance
-- purpose: Keeps the rows of a tier that late samples will be added to, as they are before; see tier_bases.
-- params:  target Identifier, tier String     the tier's table, and its name
--          from, to DateTime('UTC')           buckets that begin in [from, to)
-- reads:   late samples by the text of tier_instance (LATE); the tier of the window FINAL; tier_bases
INSERT INTO tier_bases (tier, bucket, region, instance_uuid, project_id, user_id, flavor_name, vcpus, image_id, instance_name, host, samples, samples_ended, covered_seconds, cpu_pct_avg, cpu_pct_max, memory_actual_bytes_avg, memory_rss_bytes_avg, memory_usable_bytes_avg, memory_actual_byte_seconds)
SELECT {tier:String}, l.bucket, l.region, l.instance_uuid, l.project_id, l.user_id, l.flavor_name, l.vcpus, l.image_id, t.instance_name, t.host, t.samples, t.samples_ended, t.covered_seconds, t.cpu_pct_avg, t.cpu_pct_max, t.memory_actual_bytes_avg, t.memory_rss_bytes_avg, t.memory_usable_bytes_avg, t.memory_actual_byte_seconds
FROM (SELECT DISTINCT bucket, region, instance_uuid, project_id, user_id, flavor_name, vcpus, image_id FROM (/* LATE */)) AS l
LEFT JOIN (SELECT * FROM {target:Identifier} FINAL WHERE bucket >= {from:DateTime('UTC')} AND bucket < {to:DateTime('UTC')}) AS t
    ON t.bucket = l.bucket AND t.region = l.region AND t.instance_uuid = l.instance_uuid AND t.project_id = l.project_id AND t.user_id = l.user_id AND t.flavor_name = l.flavor_name AND t.vcpus = l.vcpus AND t.image_id = l.image_id
WHERE sipHash128((l.bucket, l.region, l.instance_uuid, l.project_id, l.user_id, l.flavor_name, l.vcpus, l.image_id)) NOT IN (
    SELECT sipHash128((bucket, region, instance_uuid, project_id, user_id, flavor_name, vcpus, image_id)) FROM tier_bases WHERE tier = {tier:String} AND bucket >= {from:DateTime('UTC')} AND bucket < {to:DateTime('UTC')})
