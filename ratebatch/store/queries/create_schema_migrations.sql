-- name:    create_schema_migrations
-- purpose: The table that remembers which migrations were applied.
CREATE TABLE IF NOT EXISTS schema_migrations
(
    version UInt32,
    name String,
    digest String,
    applied_at DateTime64(6, 'UTC') DEFAULT now64(6)
)
ENGINE = MergeTree
ORDER BY version
