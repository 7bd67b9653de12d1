-- table:   pass_scopes
-- purpose: Working table of a run: the scopes it rates and, for each, the window [first, until) in which periods can be due.
CREATE TABLE IF NOT EXISTS {{table "pass_scopes"}}
(
    run_id UUID,
    scope LowCardinality(String),
    first DateTime('UTC'),
    until DateTime('UTC'),
    written_at DateTime('UTC') DEFAULT now()
)
ENGINE = {{engine "MergeTree" ""}}
ORDER BY (run_id, scope)
TTL written_at + INTERVAL 7 DAY
SETTINGS non_replicated_deduplication_window = 1000
