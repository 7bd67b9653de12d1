-- table:   exports
-- purpose: What was delivered where, and of which commits.
CREATE TABLE IF NOT EXISTS {{table "exports"}}
(
    delivery String,
    dataset LowCardinality(String),
    location String COMMENT 'without credentials',
    month Date,
    begin DateTime('UTC'),
    end DateTime('UTC'),
    commits UInt64,
    commits_digest String,
    files UInt32,
    rows UInt64,
    totals Map(LowCardinality(String), Decimal(76, 18)),
    manifest_sha256 String,
    run_id UUID,
    exported_at DateTime64(6, 'UTC') DEFAULT now64(6)
)
ENGINE = {{engine "MergeTree" ""}}
ORDER BY (location, dataset, exported_at)
SETTINGS non_replicated_deduplication_window = 1000
