-- table:   late_usage
-- purpose: Committed periods whose usage changed behind the commit: what was committed, what is there now, what that costs.
-- why:     late has more or other usage and a price difference; lost has fewer usage rows than were committed, which is an
--          alarm and never a new revision. A finding is open until a later revision is committed or the usage is as it was.
CREATE TABLE IF NOT EXISTS {{table "late_usage"}}
(
    scope LowCardinality(String),
    begin DateTime('UTC'),
    end DateTime('UTC'),
    kind Enum8('late' = 1, 'lost' = 2),
    revision UInt32 COMMENT 'that it was found against',
    committed_rows UInt64,
    committed_fingerprint UInt64,
    found_rows UInt64,
    found_fingerprint UInt64,
    currency LowCardinality(String),
    committed_total Decimal(76, 18),
    found_total Decimal(76, 18) COMMENT 'what the period would cost now; as committed for lost',
    action Enum8('hold' = 1, 'reprocess' = 2, 'ignore' = 3),
    run_id UUID,
    found_at DateTime64(6, 'UTC') DEFAULT now64(6)
)
ENGINE = {{engine "MergeTree" ""}}
ORDER BY (scope, begin, found_at)
SETTINGS non_replicated_deduplication_window = 1000
