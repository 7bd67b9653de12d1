-- table:   pass_lines
-- purpose: Working table of a pass: what an attempt's lines amount to per period, read back after they were written.
CREATE TABLE IF NOT EXISTS {{table "pass_lines"}}
(
    run_id UUID,
    scope LowCardinality(String),
    begin DateTime('UTC'),
    lines UInt64,
    keys UInt64,
    line_digest UInt64,
    qty Decimal(76, 18),
    total Decimal(76, 18),
    usage_rows UInt64,
    usage_fingerprint UInt64,
    unpriced UInt64,
    rejected UInt64,
    skipped UInt64,
    written_at DateTime('UTC') DEFAULT now()
)
ENGINE = {{engine "MergeTree" ""}}
ORDER BY (run_id, scope, begin)
TTL written_at + INTERVAL 7 DAY
