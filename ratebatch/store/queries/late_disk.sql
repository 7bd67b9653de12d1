-- name:    late_disk
-- purpose: The late samples of disks that a rollup may add, in the form of disk_samples.
-- reads:   late_samples FINAL; ingest_sequences
-- why:     one whose sequence lies among those that were stored in time, in the hour that it ends in, was stored then and
--          came again. Records of the original producer have none: the second that they tell takes its place, and one that lies
--          among the seconds of which its host's samples were stored in time stays listed, for it may have been one of them.
SELECT region, host, epoch, sequence, begin, ts, instance_uuid, project_id, JSONExtractString(record, 'device') AS device, JSONExtract(record, 'read_bytes', 'Nullable(UInt64)') AS read_bytes, JSONExtract(record, 'write_bytes', 'Nullable(UInt64)') AS write_bytes, JSONExtract(record, 'read_requests', 'Nullable(UInt64)') AS read_requests, JSONExtract(record, 'write_requests', 'Nullable(UInt64)') AS write_requests, JSONExtract(record, 'capacity_bytes', 'Nullable(UInt64)') AS capacity_bytes, JSONExtract(record, 'allocation_bytes', 'Nullable(UInt64)') AS allocation_bytes, JSONExtract(record, 'physical_bytes', 'Nullable(UInt64)') AS physical_bytes,
       JSONExtractString(record, 'user_id') AS user_id, JSONExtractString(record, 'flavor_name') AS flavor_name, toUInt16(JSONExtractUInt(record, 'vcpus')) AS vcpus,
       JSONExtractString(record, 'image_id') AS image_id, JSONExtractString(record, 'instance_name') AS instance_name
FROM late_samples AS l FINAL
LEFT JOIN (SELECT region, host, epoch, hour, min(q.first) AS first, max(q.last) AS last FROM ingest_sequences AS q GROUP BY region, host, epoch, hour) AS s
    ON s.region = l.region AND s.host = l.host AND s.epoch = l.epoch AND s.hour = toDateTime(intDiv(toUnixTimestamp64Milli(l.ts) - 1, 3600000) * 3600, 'UTC')
WHERE l.kind = 'disk' AND NOT (s.last > 0 AND if(l.epoch = 0, toUInt64(toUnixTimestamp(l.ts)), l.sequence) BETWEEN s.first AND s.last)
