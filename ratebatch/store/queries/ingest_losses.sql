-- name:    ingest_losses
-- purpose: What Kafka lost before it was ingested, since a moment.
-- params:  since DateTime('UTC')
-- reads:   ingest_losses, small
SELECT source, topic, partition, topic_id, cause, from_offset, to_offset, detail, run_id, found_at
FROM ingest_losses FINAL WHERE found_at >= {since:DateTime('UTC')}
ORDER BY found_at, topic, partition
