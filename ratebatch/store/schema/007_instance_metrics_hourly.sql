-- table:   instance_metrics_hourly
-- purpose: CPU and memory of an instance in an hour, over distinct samples; what rating reads.
-- why:     ReplacingMergeTree(samples): a recomputation over partly expired raw data has fewer samples and so never
--          replaces a fuller row; of equally full rows the one inserted last counts. samples is the number of distinct
--          samples with a part in the bucket; samples_ended counts only those that end in it, so over all rows it
--          counts each distinct sample once (what reconcile proves). covered_seconds is the time the samples cover,
--          at most the bucket's length per resource. Attributes in force are part of the key: a resize in the middle
--          of a bucket gives two rows, each with its own time. Values are summed over hosts; host is the last one.
CREATE TABLE IF NOT EXISTS {{table "instance_metrics_hourly"}}
(
    bucket DateTime('UTC') CODEC(Delta, ZSTD(1)),
    region LowCardinality(String) CODEC(ZSTD(1)),
    instance_uuid UUID CODEC(ZSTD(1)),
    project_id LowCardinality(String) CODEC(ZSTD(1)),
    user_id LowCardinality(String) CODEC(ZSTD(1)),
    flavor_name LowCardinality(String) CODEC(ZSTD(1)),
    vcpus UInt16 CODEC(ZSTD(1)),
    image_id LowCardinality(String) CODEC(ZSTD(1)),
    instance_name String CODEC(ZSTD(3)),
    host LowCardinality(String) CODEC(ZSTD(1)),
    samples UInt32 CODEC(T64, ZSTD(1)),
    samples_ended UInt32 CODEC(T64, ZSTD(1)),
    covered_seconds Decimal(9, 3) CODEC(T64, ZSTD(1)),
    cpu_pct_avg Decimal(9, 4) CODEC(T64, ZSTD(1)),
    cpu_pct_max Decimal(5, 2) CODEC(T64, ZSTD(1)),
    memory_actual_bytes_avg Nullable(UInt64) CODEC(T64('bit'), ZSTD(1)),
    memory_rss_bytes_avg Nullable(UInt64) CODEC(T64('bit'), ZSTD(1)),
    memory_usable_bytes_avg Nullable(UInt64) CODEC(T64('bit'), ZSTD(1)),
    memory_actual_byte_seconds Decimal(38, 3) CODEC(ZSTD(1)),
    refreshed_at DateTime('UTC') DEFAULT now() CODEC(Delta, ZSTD(1)),
    INDEX refreshed refreshed_at TYPE minmax GRANULARITY 1
)
ENGINE = {{engine "ReplacingMergeTree" "samples"}}
PARTITION BY toDate(bucket)
ORDER BY (region, instance_uuid, bucket, project_id, user_id, flavor_name, vcpus, image_id)
TTL bucket + INTERVAL {{seconds .Retention.Hourly}} SECOND
SETTINGS ttl_only_drop_parts = 1
