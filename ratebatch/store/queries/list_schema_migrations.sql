-- name:    list_schema_migrations
-- purpose: The migrations that were applied; the first record of each counts.
-- reads:   schema_migrations, a few rows
SELECT version, argMin(digest, applied_at) AS digest, toUnixTimestamp64Micro(min(applied_at)) AS first FROM schema_migrations GROUP BY version ORDER BY version
