-- table:   month_commits
-- purpose: What exactly a closed month consists of: the frozen commits, one row each, and one total row per close and currency.
-- why:     a close counts only with its row of kind close, which is written last, so one that was cut counts for nothing.
CREATE TABLE IF NOT EXISTS {{table "month_commits"}}
(
    month Date,
    closed UInt32 COMMENT 'how often this month was closed, from 1',
    kind Enum8('commit' = 1, 'close' = 2, 'reopen' = 3),
    scope LowCardinality(String),
    begin DateTime('UTC'),
    key UInt128,
    periods UInt64,
    lines UInt64,
    line_digest UInt64,
    total Decimal(76, 18),
    currency LowCardinality(String),
    reason String,
    author String,
    closed_at DateTime64(6, 'UTC') DEFAULT now64(6)
)
ENGINE = {{engine "MergeTree" ""}}
ORDER BY (month, closed, kind, scope, begin)
SETTINGS non_replicated_deduplication_window = 1000
