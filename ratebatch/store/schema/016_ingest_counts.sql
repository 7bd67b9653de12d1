-- table:   ingest_counts
-- purpose: Counts and sums per hour and kind of record that outlive raw samples; reconcile compares the tiers with them.
CREATE TABLE IF NOT EXISTS {{table "ingest_counts"}}
(
    kind LowCardinality(String),
    region LowCardinality(String),
    hour DateTime('UTC'),
    samples UInt64,
    sums Map(LowCardinality(String), Decimal(38, 0)),
    counted_at DateTime64(6, 'UTC') DEFAULT now64(6)
)
ENGINE = {{engine "ReplacingMergeTree" "counted_at"}}
ORDER BY (kind, region, hour)
