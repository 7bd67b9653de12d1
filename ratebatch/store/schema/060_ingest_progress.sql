-- table:   ingest_progress
-- purpose: How far ingest has read each partition, and up to which moment everything that was in it is stored: what the
--          watermark of a region is made of. Offsets that count are the consumer group's; these are for people, for the
--          watermark and to notice that a topic is another one now.
CREATE TABLE IF NOT EXISTS {{table "ingest_progress"}}
(
    source String COMMENT 'cluster id / consumer group',
    topic LowCardinality(String),
    partition Int32,
    topic_id UUID,
    next_offset Int64,
    drained_at DateTime64(3, 'UTC') COMMENT 'what was in the partition at this moment is stored; 1970: not known',
    regions Array(String) COMMENT 'that records of this partition were of',
    gone Bool COMMENT 'the partition is no more: it holds no watermark up',
    run_id UUID,
    written_at DateTime64(6, 'UTC') DEFAULT now64(6)
)
ENGINE = {{engine "ReplacingMergeTree" "written_at"}}
ORDER BY (source, topic, partition)
