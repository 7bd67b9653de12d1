-- table:   rejected_records
-- purpose: Records that did not decode, with their place in the topic and the reason; never dropped.
CREATE TABLE IF NOT EXISTS {{table "rejected_records"}}
(
    topic LowCardinality(String),
    partition Int32,
    offset Int64,
    key String,
    record String CODEC(ZSTD(3)),
    reason String,
    ingested_at DateTime('UTC') DEFAULT now()
)
ENGINE = {{engine "ReplacingMergeTree" ""}}
ORDER BY (topic, partition, offset)
SETTINGS non_replicated_deduplication_window = 10000
