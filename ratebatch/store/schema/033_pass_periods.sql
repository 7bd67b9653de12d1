-- table:   pass_periods
-- purpose: Working table of a pass: the periods an attempt rates and the usage it found for each before it wrote a line.
-- why:     lost says that the period is rated already and now has fewer usage rows by the same metrics: an alarm, never a
--          new revision. The table stays in ClickHouse because millions of periods do not belong in the job's memory.
CREATE TABLE IF NOT EXISTS {{table "pass_periods"}}
(
    run_id UUID,
    scope LowCardinality(String),
    begin DateTime('UTC'),
    end DateTime('UTC'),
    revision UInt32,
    usage_rows UInt64,
    usage_fingerprint UInt64,
    usage_qty Decimal(76, 18),
    usage_keys UInt64,
    committed_rows UInt64,
    lost Bool,
    read_at DateTime64(6, 'UTC') DEFAULT now64(6),
    written_at DateTime('UTC') DEFAULT now()
)
ENGINE = {{engine "MergeTree" ""}}
ORDER BY (run_id, scope, begin)
TTL written_at + INTERVAL 7 DAY
