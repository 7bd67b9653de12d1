-- table:   void_attempts
-- purpose: Attempts whose lines and commits count for nothing, whatever they write later.
-- why:     retention voids an attempt here before it removes its lines, so a stalled run that wakes up an hour later
--          commits nothing.
CREATE TABLE IF NOT EXISTS {{table "void_attempts"}}
(
    run_id UUID,
    reason String,
    voided_at DateTime64(6, 'UTC') DEFAULT now64(6)
)
ENGINE = {{engine "ReplacingMergeTree" ""}}
ORDER BY run_id
