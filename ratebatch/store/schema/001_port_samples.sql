-- table:   port_samples
-- purpose: Raw traffic of a port over one interval, as one agent record each.
-- why:     ReplacingMergeTree on the sample's identity: (region, host, epoch, sequence) for records of our agent,
--          (region, host, instance, port or device, ts) for records of the spec's producer, which have epoch 0 and
--          sequence 0. The sort key holds both, so a resend merges away and a clock set back loses nothing. Readers
--          drop repeats themselves and never wait for a merge.
--          A sample covers [begin, ts). TTL is by the sample's own time; shorter than the lateness it would delete
--          late samples at insert, so migrate refuses less than 6 h.
CREATE TABLE IF NOT EXISTS {{table "port_samples"}}
(
    region LowCardinality(String) CODEC(ZSTD(1)),
    host LowCardinality(String) CODEC(ZSTD(1)),
    epoch UInt64 CODEC(ZSTD(1)),
    sequence UInt64 CODEC(DoubleDelta, ZSTD(1)),
    begin DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    ts DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    instance_uuid UUID CODEC(ZSTD(1)),
    port_uuid UUID CODEC(ZSTD(1)),
    network_uuid UUID CODEC(ZSTD(1)),
    rx_bytes UInt64 CODEC(T64, ZSTD(1)),
    tx_bytes UInt64 CODEC(T64, ZSTD(1)),
    project_id LowCardinality(String) CODEC(ZSTD(1)),
    user_id LowCardinality(String) CODEC(ZSTD(1)),
    flavor_name LowCardinality(String) CODEC(ZSTD(1)),
    vcpus UInt16 CODEC(ZSTD(1)),
    image_id LowCardinality(String) CODEC(ZSTD(1)),
    instance_name String CODEC(ZSTD(3)),
    domain_id LowCardinality(String) CODEC(ZSTD(1)),
    agent_version LowCardinality(String) CODEC(ZSTD(1)),
    ingested_at DateTime('UTC') DEFAULT now() CODEC(Delta, ZSTD(1)),
    INDEX ingested ingested_at TYPE minmax GRANULARITY 1
)
ENGINE = {{engine "ReplacingMergeTree" ""}}
PARTITION BY toDate(ts)
ORDER BY (region, instance_uuid, port_uuid, ts, host, epoch, sequence)
TTL toDateTime(ts) + INTERVAL {{seconds .Retention.Raw}} SECOND
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000
