-- table:   watermarks
-- purpose: Per region, up to when the input is complete and who says so; the row written last counts.
CREATE TABLE IF NOT EXISTS {{table "watermarks"}}
(
    region LowCardinality(String),
    complete_until DateTime('UTC'),
    source LowCardinality(String) COMMENT 'operator, newest sample or ingest',
    note String,
    set_at DateTime64(6, 'UTC') DEFAULT now64(6)
)
ENGINE = {{engine "MergeTree" ""}}
ORDER BY (region, set_at)
SETTINGS non_replicated_deduplication_window = 1000
