-- name:    web_exports
-- purpose: Deliveries, the newest first.
-- params:  limit, skip UInt32
-- reads:   exports, small
SELECT delivery, toString(dataset), toString(mechanism), location, month, begin, end, commits, commits_digest, files, rows, CAST(totals, 'Map(String, Decimal(76, 18))'), manifest_sha256, run_id, exported_at, count() OVER () AS total
FROM exports ORDER BY exported_at DESC, delivery LIMIT {limit:UInt32} OFFSET {skip:UInt32}
