-- table:   carry_looks
-- purpose: When commits whose carry-in changed behind them were last looked for; the next look begins there.
CREATE TABLE IF NOT EXISTS {{table "carry_looks"}}
(
    looked_at DateTime64(6, 'UTC') COMMENT 'server time before the look',
    scopes UInt64 COMMENT 'months of scopes that were looked at closely',
    changed UInt64 COMMENT 'periods whose lines change'
)
ENGINE = {{engine "MergeTree" ""}}
ORDER BY looked_at
TTL toDateTime(looked_at) + INTERVAL 400 DAY
SETTINGS non_replicated_deduplication_window = 1000
