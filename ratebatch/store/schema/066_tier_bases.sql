-- table:   tier_bases
-- purpose: Rows of the tiers as they were before late samples were added to them, of the keys that late samples touch; all
--          zero where the tier had none. What late samples give is added to these, so adding may be repeated.
-- why:     raw samples of those hours are gone, so the row cannot be computed anew. Of two rows the one with fewer samples
--          is the base: the other was taken after an addition by a run at the same time.
CREATE TABLE IF NOT EXISTS {{table "tier_bases"}}
(
    tier LowCardinality(String),
    bucket DateTime('UTC'),
    region LowCardinality(String),
    instance_uuid UUID,
    port_uuid UUID,
    network_uuid UUID,
    device LowCardinality(String),
    project_id LowCardinality(String),
    user_id LowCardinality(String),
    flavor_name LowCardinality(String),
    vcpus UInt16,
    image_id LowCardinality(String),
    instance_name String,
    host LowCardinality(String),
    samples UInt32,
    samples_ended UInt32,
    covered_seconds Decimal(9, 3),
    rx_bytes UInt64,
    tx_bytes UInt64,
    cpu_pct_avg Decimal(9, 4),
    cpu_pct_max Decimal(5, 2),
    memory_actual_bytes_avg Nullable(UInt64),
    memory_rss_bytes_avg Nullable(UInt64),
    memory_usable_bytes_avg Nullable(UInt64),
    memory_actual_byte_seconds Decimal(38, 3),
    read_bytes UInt64,
    write_bytes UInt64,
    read_requests UInt64,
    write_requests UInt64,
    capacity_bytes_avg Nullable(UInt64),
    allocation_bytes_avg Nullable(UInt64),
    physical_bytes_avg Nullable(UInt64),
    capacity_byte_seconds Decimal(38, 3),
    fewer UInt32 DEFAULT 4294967295 - samples
)
ENGINE = {{engine "ReplacingMergeTree" "fewer"}}
PARTITION BY toYYYYMM(bucket)
ORDER BY (tier, region, instance_uuid, port_uuid, device, bucket, network_uuid, project_id, user_id, flavor_name, vcpus, image_id)
TTL bucket + INTERVAL {{seconds .Retention.Hourly}} SECOND
SETTINGS ttl_only_drop_parts = 1
