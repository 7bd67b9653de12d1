-- table:   pass_carries
-- purpose: Working table of a pass: what each account of tiered pricing had added up in the month before a period, and what the
--          period adds; one row for each account that a period's usage draws on.
-- why:     from it follow the tier of every row of a period, the periods that cross an edge and are cut there, and what the
--          commit stores. account '(charged)' is money: what a month came to before and in its last period, for its minimum
--          and cap.
CREATE TABLE IF NOT EXISTS {{table "pass_carries"}}
(
    run_id UUID,
    metric LowCardinality(String),
    scope LowCardinality(String),
    begin DateTime('UTC'),
    account String,
    tariff UInt32 COMMENT 'number in the pass, from 1',
    carry_in Decimal(38, 18),
    used Decimal(38, 18) COMMENT 'sum of the quantities above 0',
    first_tier UInt16 COMMENT 'graduated: that the period begins in; volume: that the month was in before; from 1',
    last_tier UInt16,
    crosses Bool COMMENT 'rows of the period are to be cut',
    region LowCardinality(String) COMMENT 'the first of the rows',
    written_at DateTime('UTC') DEFAULT now()
)
ENGINE = {{engine "MergeTree" ""}}
ORDER BY (run_id, metric, scope, begin)
TTL written_at + INTERVAL 7 DAY
