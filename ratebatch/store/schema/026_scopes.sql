-- table:   scopes
-- purpose: Every scope that was ever seen, whether it is rated, and where it came from; the row written last counts.
CREATE TABLE IF NOT EXISTS {{table "scopes"}}
(
    scope LowCardinality(String),
    active Bool,
    name String,
    domain String,
    fetcher LowCardinality(String),
    reason String,
    author String,
    changed_at DateTime64(6, 'UTC') DEFAULT now64(6)
)
ENGINE = {{engine "MergeTree" ""}}
ORDER BY (scope, changed_at)
SETTINGS non_replicated_deduplication_window = 1000
