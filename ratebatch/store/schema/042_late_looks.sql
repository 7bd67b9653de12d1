-- table:   late_looks
-- purpose: When usage that arrived behind its commit was last looked for; the next look begins there.
CREATE TABLE IF NOT EXISTS {{table "late_looks"}}
(
    looked_at DateTime64(6, 'UTC') COMMENT 'server time before the look',
    candidates UInt64,
    late UInt64,
    lost UInt64
)
ENGINE = {{engine "MergeTree" ""}}
ORDER BY looked_at
TTL toDateTime(looked_at) + INTERVAL 400 DAY
SETTINGS non_replicated_deduplication_window = 1000
