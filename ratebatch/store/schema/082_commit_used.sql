-- table:   period_commits
-- purpose: What a period adds to each account of tiered pricing; carry_in has what the account had before it in the month.
-- why:     the right carry-in of a period is the sum of what the current commits before it in the month use. It is always
--          taken from there, so one that was stored and has changed since is never passed on.
ALTER TABLE {{table "period_commits"}} ADD COLUMN IF NOT EXISTS used Map(LowCardinality(String), Decimal(38, 18)) AFTER carry_in
