-- name:    last_count
-- purpose: When ingest_counts was written last, less the five minutes that a block may take from its stamp to being visible.
-- reads:   ingest_counts, small
SELECT toDateTime(greatest(toInt64(toUnixTimestamp(max(counted_at))) - 300, 0), 'UTC') FROM ingest_counts
