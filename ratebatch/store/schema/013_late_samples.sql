-- table:   late_samples
-- purpose: Samples that arrived when their raw tier no longer keeps them; listed, and rolled up only when asked.
CREATE TABLE IF NOT EXISTS {{table "late_samples"}}
(
    kind LowCardinality(String),
    region LowCardinality(String),
    host LowCardinality(String),
    epoch UInt64,
    sequence UInt64,
    begin DateTime64(3, 'UTC'),
    ts DateTime64(3, 'UTC'),
    instance_uuid UUID,
    project_id LowCardinality(String),
    record String COMMENT 'the whole record, as JSON',
    ingested_at DateTime('UTC') DEFAULT now()
)
ENGINE = {{engine "ReplacingMergeTree" ""}}
PARTITION BY toYYYYMM(ts)
ORDER BY (kind, region, instance_uuid, ts, host, epoch, sequence)
SETTINGS non_replicated_deduplication_window = 10000
