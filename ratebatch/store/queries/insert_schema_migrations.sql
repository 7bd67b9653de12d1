-- name:    insert_schema_migrations
-- purpose: Records migrations after they were run.
-- params:  versions Array(String) (numbers), names Array(String), digests Array(String), applied_at DateTime64(6, 'UTC')
INSERT INTO schema_migrations (version, name, digest, applied_at)
SELECT toUInt32(m.1), m.2, m.3, {applied_at:DateTime64(6, 'UTC')}
FROM (SELECT arrayJoin(arrayZip({versions:Array(String)}, {names:Array(String)}, {digests:Array(String)})) AS m)
