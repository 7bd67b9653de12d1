-- name:    doctor_parts
-- purpose: Partitions with more parts than merges should leave.
-- params:  most UInt32
-- reads:   system.parts
SELECT table, partition, toUInt64(count()) AS parts, toUInt64(sum(bytes_on_disk)) AS bytes
FROM system.parts
WHERE database = currentDatabase() AND active
GROUP BY table, partition HAVING parts > {most:UInt32}
ORDER BY parts DESC LIMIT 20
