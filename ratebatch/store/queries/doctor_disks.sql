-- name:    doctor_disks
-- purpose: How much space the server's disks have left.
-- reads:   system.disks
-- why:     object storage reports no size: it has 2^64 - 1 bytes.
SELECT name, path, toUInt64(unreserved_space) AS free, toUInt64(total_space) AS total FROM system.disks
WHERE total_space BETWEEN 1 AND 1152921504606846976 ORDER BY name
