-- table:   ingest_sequences
-- purpose: Which sequences of each agent were stored in time, per hour in which their samples ended; it outlives raw samples.
-- why:     an agent that was away may send again what it had sent before. Such a sample looks like a late one; its sequence
--          lies among those that were stored, and so it is not added a second time.
CREATE TABLE IF NOT EXISTS {{table "ingest_sequences"}}
(
    region LowCardinality(String),
    host LowCardinality(String),
    epoch UInt64,
    hour DateTime('UTC'),
    first SimpleAggregateFunction(min, UInt64),
    last SimpleAggregateFunction(max, UInt64)
)
ENGINE = {{engine "AggregatingMergeTree" ""}}
PARTITION BY toYYYYMM(hour)
ORDER BY (region, host, epoch, hour)
TTL hour + INTERVAL {{seconds .Retention.Hourly}} SECOND
SETTINGS ttl_only_drop_parts = 1
