-- table:   scope_failures
-- purpose: Why periods of a scope could not be rated while the others were; the next run tries them again.
CREATE TABLE IF NOT EXISTS {{table "scope_failures"}}
(
    scope LowCardinality(String),
    begin DateTime('UTC'),
    run_id UUID COMMENT 'of the attempt',
    error String,
    failed_at DateTime64(6, 'UTC') DEFAULT now64(6)
)
ENGINE = {{engine "MergeTree" ""}}
ORDER BY (scope, failed_at)
TTL toDateTime(failed_at) + INTERVAL 400 DAY
SETTINGS non_replicated_deduplication_window = 1000
