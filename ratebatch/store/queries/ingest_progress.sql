-- name:    ingest_progress
-- purpose: How far each partition of a source is read.
-- params:  source String
-- reads:   ingest_progress, small
SELECT topic, partition, topic_id, next_offset, drained_at, regions, gone
FROM ingest_progress FINAL WHERE source = {source:String}
ORDER BY topic, partition
