-- table:   usage_months
-- purpose: Which scopes have usage in which region in a month that is over; a hint that saves reading its tiers again.
-- why:     an hourly run asks for it, and a year of open months is hundreds of day partitions. The state is made of the names
--          and checksums of the month's parts: whatever is written, merged, deleted or attached there changes it, so the hint
--          needs no other invalidation. One row a month, because only a row is written as a whole.
CREATE TABLE IF NOT EXISTS {{table "usage_months"}}
(
    source String COMMENT 'digest of the tables that are read and of how',
    month Date,
    state UInt64 COMMENT 'of the parts that hold the month',
    scopes Array(String),
    regions Array(String),
    firsts Array(DateTime('UTC')) COMMENT 'the first bucket with usage, of each scope and region',
    noted_at DateTime64(6, 'UTC') DEFAULT now64(6)
)
ENGINE = {{engine "ReplacingMergeTree" "noted_at"}}
ORDER BY (source, month)
TTL toDateTime(noted_at) + INTERVAL 400 DAY
SETTINGS non_replicated_deduplication_window = 1000
