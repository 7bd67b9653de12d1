-- table:   plain_months
-- purpose: Months of which every rated line counts, with what that was concluded from; a hint that saves reading the commits.
-- why:     reading a month through millions of commits costs many times the plain sum. Rows are only ever added to a month's
--          commits and lines, but by retention; so as long as both counts (and the latest commit) are those of the look, nothing
--          has changed.
--          Retention removes rows: it notes the month anew before, with counts that no month has, so an older look (or one
--          that began before) is not believed any more. The row that was checked last counts.
CREATE TABLE IF NOT EXISTS {{table "plain_months"}}
(
    month UInt32 COMMENT 'YYYYMM, as the partitions of commits and lines',
    commits UInt64 COMMENT 'rows of period_commits in this month',
    lines UInt64 COMMENT 'rows of rated_lines in this month',
    latest DateTime64(6, 'UTC') COMMENT 'when the last of the commits was made',
    voids UInt64 COMMENT 'rows of void_attempts, distinct',
    checked_at DateTime64(6, 'UTC') COMMENT 'when the look began'
)
ENGINE = {{engine "MergeTree" ""}}
ORDER BY (month, checked_at)
SETTINGS non_replicated_deduplication_window = 1000
