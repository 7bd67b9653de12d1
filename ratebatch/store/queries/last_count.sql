-- name:    last_count
-- purpose: When what arrived was counted last, less the five minutes that a block may take from its stamp to being visible.
-- reads:   ingest_counts, small
-- why:     late samples that a rollup added are counted there too, at other times: those say nothing of what arrived.
SELECT toDateTime(greatest(toInt64(toUnixTimestamp(max(counted_at))) - 300, 0), 'UTC') FROM ingest_counts WHERE kind IN ('port', 'instance', 'disk')
