-- name:    late_instance
-- purpose: The late samples of instances that a rollup may add, in the form of instance_samples.
-- params:  from, to DateTime('UTC')           hours that begin in [from, to)
-- reads:   JUDGED: late_judged
SELECT region, host, epoch, sequence, begin, ts, instance_uuid, project_id, CAST(toDecimal32(JSONExtractRaw(record, 'cpu_pct'), 2) AS Decimal(5, 2)) AS cpu_pct, JSONExtract(record, 'memory_actual_bytes', 'Nullable(UInt64)') AS memory_actual_bytes, JSONExtract(record, 'memory_rss_bytes', 'Nullable(UInt64)') AS memory_rss_bytes, JSONExtract(record, 'memory_usable_bytes', 'Nullable(UInt64)') AS memory_usable_bytes,
       JSONExtractString(record, 'user_id') AS user_id, JSONExtractString(record, 'flavor_name') AS flavor_name, toUInt16(JSONExtractUInt(record, 'vcpus')) AS vcpus,
       JSONExtractString(record, 'image_id') AS image_id, JSONExtractString(record, 'instance_name') AS instance_name
FROM (/* JUDGED */) WHERE kind = 'instance' AND verdict = 'new'
