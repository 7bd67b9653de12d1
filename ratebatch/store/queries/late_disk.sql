-- name:    late_disk
-- purpose: The late samples of disks that a rollup may add, in the form of disk_samples.
-- params:  from, to DateTime('UTC')           hours that begin in [from, to)
-- reads:   JUDGED: late_judged
SELECT region, host, epoch, sequence, begin, ts, instance_uuid, project_id, JSONExtractString(record, 'device') AS device, JSONExtract(record, 'read_bytes', 'Nullable(UInt64)') AS read_bytes, JSONExtract(record, 'write_bytes', 'Nullable(UInt64)') AS write_bytes, JSONExtract(record, 'read_requests', 'Nullable(UInt64)') AS read_requests, JSONExtract(record, 'write_requests', 'Nullable(UInt64)') AS write_requests, JSONExtract(record, 'capacity_bytes', 'Nullable(UInt64)') AS capacity_bytes, JSONExtract(record, 'allocation_bytes', 'Nullable(UInt64)') AS allocation_bytes, JSONExtract(record, 'physical_bytes', 'Nullable(UInt64)') AS physical_bytes,
       JSONExtractString(record, 'user_id') AS user_id, JSONExtractString(record, 'flavor_name') AS flavor_name, toUInt16(JSONExtractUInt(record, 'vcpus')) AS vcpus,
       JSONExtractString(record, 'image_id') AS image_id, JSONExtractString(record, 'instance_name') AS instance_name
FROM (/* JUDGED */) WHERE kind = 'disk' AND verdict = 'new'
