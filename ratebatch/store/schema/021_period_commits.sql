-- table:   period_commits
-- purpose: The state: the row that makes a period's lines of an attempt count.
-- why:     of all commits of a scope's period the one of the highest revision counts; of equal revisions the one
--          committed first (server time), then the lowest run_id. rank packs that total order into one number: the
--          highest rank is current. run_id is ordered by reinterpretAsUInt128, in SQL and nowhere else.
--          usage_read_at is when the attempt counted the usage, so that what arrived behind it is found (late_usage).
--          lines, line_digest and total are compared with the rows by every reader of money. line_digest is the
--          wrapping sum of cityHash64 over all that a line says (region, metric, resource, attributes, part, end, unit, qty,
--          price, rule, bucket).
CREATE TABLE IF NOT EXISTS {{table "period_commits"}}
(
    scope LowCardinality(String),
    begin DateTime('UTC'),
    end DateTime('UTC'),
    revision UInt32,
    kind Enum8('rated' = 1, 'reset' = 2, 'disabled' = 3),
    run_id UUID,
    plan_digest LowCardinality(String),
    metrics_digest LowCardinality(String),
    currency LowCardinality(String),
    usage_rows UInt64,
    usage_fingerprint UInt64,
    usage_read_at DateTime64(6, 'UTC'),
    lines UInt64,
    line_digest UInt64,
    total Decimal(76, 18),
    unpriced UInt64,
    rejected UInt64,
    skipped UInt64,
    carry_in Map(LowCardinality(String), Decimal(38, 18)),
    reason String,
    author String,
    committed_at DateTime64(6, 'UTC') DEFAULT now64(6),
    key UInt128 DEFAULT reinterpretAsUInt128(sipHash128(scope, begin, run_id)),
    rank UInt256 DEFAULT bitShiftLeft(toUInt256(revision), 192)
        + bitShiftLeft(toUInt256(18446744073709551615 - toUInt64(toUnixTimestamp64Micro(committed_at))), 128)
        + toUInt256(bitNot(reinterpretAsUInt128(run_id)))
)
ENGINE = {{engine "MergeTree" ""}}
PARTITION BY toYYYYMM(begin)
ORDER BY (scope, begin, revision)
SETTINGS non_replicated_deduplication_window = 1000
