-- table:   ingest_losses
-- purpose: Records that a topic no longer held when ingest came for them: retention passed, or the topic was deleted,
--          cut or made anew. They cannot be had back from Kafka; status shows them.
CREATE TABLE IF NOT EXISTS {{table "ingest_losses"}}
(
    source String COMMENT 'cluster id / consumer group',
    topic LowCardinality(String),
    partition Int32,
    topic_id UUID,
    cause LowCardinality(String) COMMENT 'expired, recreated or truncated',
    from_offset Int64,
    to_offset Int64 COMMENT 'not included; -1: not known',
    detail String,
    run_id UUID,
    found_at DateTime64(3, 'UTC')
)
ENGINE = {{engine "ReplacingMergeTree" "found_at"}}
ORDER BY (source, topic, partition, topic_id, cause, from_offset)
