-- name:    list_schema_migrations
-- purpose: The migrations that were applied; the first record of each counts.
-- reads:   schema_migrations, a few rows
SELECT version, argMin(digest, applied_at) FROM schema_migrations GROUP BY version ORDER BY version
