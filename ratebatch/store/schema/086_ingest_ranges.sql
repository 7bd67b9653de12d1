-- table:   ingest_ranges
-- purpose: Which sequences of each agent were stored in time, per hour in which their samples ended: ranges without a hole.
-- why:     an agent that was away may send again what it had sent before. Such a sample looks like a late one, and only its
--          sequence says that it is none. A host's sequences run across all its resources, so the least and the greatest of an
--          hour (ingest_sequences) say nothing about one that lies between them and never came. Ranges found by several counts
--          may overlap: each is true.
CREATE TABLE IF NOT EXISTS {{table "ingest_ranges"}}
(
    region LowCardinality(String) COMMENT 'the region',
    host LowCardinality(String) COMMENT 'the compute node',
    epoch UInt64 COMMENT 'of the agent, never 0',
    hour DateTime('UTC') COMMENT 'in which the samples ended',
    first UInt64 COMMENT 'first sequence of the range',
    last SimpleAggregateFunction(max, UInt64) COMMENT 'last sequence of the range'
)
ENGINE = {{engine "AggregatingMergeTree" ""}}
PARTITION BY toYYYYMM(hour)
ORDER BY (region, host, epoch, hour, first)
TTL hour + INTERVAL {{seconds .Retention.Hourly}} SECOND
SETTINGS ttl_only_drop_parts = 1
