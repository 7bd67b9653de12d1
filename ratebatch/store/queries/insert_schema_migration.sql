-- name:    insert_schema_migration
-- purpose: Records a migration after it was run.
-- params:  version UInt32, name String, digest String, applied_at DateTime64(6, 'UTC')
INSERT INTO schema_migrations (version, name, digest, applied_at)
SELECT {version:UInt32}, {name:String}, {digest:String}, {applied_at:DateTime64(6, 'UTC')}
