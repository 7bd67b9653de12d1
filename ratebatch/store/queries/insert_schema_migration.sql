-- name:    insert_schema_migration
-- purpose: Records a migration after it was run.
-- params:  version UInt32, name String, digest String
INSERT INTO schema_migrations (version, name, digest)
SELECT {version:UInt32}, {name:String}, {digest:String}
