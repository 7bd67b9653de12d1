-- table:   leases
-- purpose: Who runs a job right now. It saves work; correctness never rests on it.
CREATE TABLE IF NOT EXISTS {{table "leases"}}
(
    name LowCardinality(String),
    holder String COMMENT 'host, boot id, pid and start time of the process, and the run',
    state Enum8('claimed' = 1, 'released' = 2),
    claimed_at DateTime64(6, 'UTC'),
    beat_at DateTime64(6, 'UTC') DEFAULT now64(6)
)
ENGINE = {{engine "MergeTree" ""}}
ORDER BY (name, beat_at)
TTL toDateTime(beat_at) + INTERVAL 7 DAY
SETTINGS non_replicated_deduplication_window = 1000
