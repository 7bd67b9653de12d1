-- name:    base_late_disk
-- purpose: Keeps the rows of a tier that late samples will be added to, as they are before; see tier_bases.
-- params:  target Identifier, tier String     the tier's table, and its name
--          from, to DateTime('UTC')           buckets that begin in [from, to)
-- reads:   late samples by the text of tier_disk (LATE); the tier of the window FINAL; tier_bases
INSERT INTO tier_bases (tier, bucket, region, instance_uuid, device, project_id, user_id, flavor_name, vcpus, image_id, instance_name, host, samples, samples_ended, covered_seconds, read_bytes, write_bytes, read_requests, write_requests, capacity_bytes_avg, allocation_bytes_avg, physical_bytes_avg, capacity_byte_seconds)
SELECT {tier:String}, l.bucket, l.region, l.instance_uuid, l.device, l.project_id, l.user_id, l.flavor_name, l.vcpus, l.image_id, t.instance_name, t.host, t.samples, t.samples_ended, t.covered_seconds, t.read_bytes, t.write_bytes, t.read_requests, t.write_requests, t.capacity_bytes_avg, t.allocation_bytes_avg, t.physical_bytes_avg, t.capacity_byte_seconds
FROM (SELECT DISTINCT bucket, region, instance_uuid, device, project_id, user_id, flavor_name, vcpus, image_id FROM (/* LATE */)) AS l
LEFT JOIN (SELECT * FROM {target:Identifier} FINAL WHERE bucket >= {from:DateTime('UTC')} AND bucket < {to:DateTime('UTC')}) AS t
    ON t.bucket = l.bucket AND t.region = l.region AND t.instance_uuid = l.instance_uuid AND t.device = l.device AND t.project_id = l.project_id AND t.user_id = l.user_id AND t.flavor_name = l.flavor_name AND t.vcpus = l.vcpus AND t.image_id = l.image_id
WHERE sipHash128((l.bucket, l.region, l.instance_uuid, l.device, l.project_id, l.user_id, l.flavor_name, l.vcpus, l.image_id)) NOT IN (
    SELECT sipHash128((bucket, region, instance_uuid, device, project_id, user_id, flavor_name, vcpus, image_id)) FROM tier_bases WHERE tier = {tier:String} AND bucket >= {from:DateTime('UTC')} AND bucket < {to:DateTime('UTC')})
