-- table:   retention_keys
-- purpose: Working table of the retention job: the keys of commits whose lines it removes.
-- why:     what is removed is decided once, before anything is removed; a mutation then reads the list and not the state.
CREATE TABLE IF NOT EXISTS {{table "retention_keys"}}
(
    run_id UUID COMMENT 'of the retention run',
    scope LowCardinality(String),
    key UInt128,
    lines UInt64,
    written_at DateTime('UTC') DEFAULT now()
)
ENGINE = {{engine "MergeTree" ""}}
ORDER BY (run_id, key)
TTL written_at + INTERVAL 7 DAY
