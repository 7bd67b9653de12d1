-- table:   complete_months
-- purpose: Months in which nothing was due, with what that was concluded from; a hint that saves reading them again.
-- why:     every commit, reset and void attempt changes the state's key, so the hint needs no other invalidation.
CREATE TABLE IF NOT EXISTS {{table "complete_months"}}
(
    month Date,
    windows UInt64 COMMENT 'hash of the scopes and their windows in this month',
    commits UInt64 COMMENT 'rows of period_commits in this month',
    latest DateTime64(6, 'UTC') COMMENT 'when the last of them was made',
    voids UInt64 COMMENT 'rows of void_attempts',
    checked_at DateTime64(6, 'UTC') DEFAULT now64(6)
)
ENGINE = {{engine "ReplacingMergeTree" "checked_at"}}
ORDER BY month
SETTINGS non_replicated_deduplication_window = 1000
