-- table:   period_commits
-- purpose: The same for the Distributed table of a cluster; elsewhere it is the same table, and nothing changes.
ALTER TABLE {{view "period_commits"}} ADD COLUMN IF NOT EXISTS used Map(LowCardinality(String), Decimal(38, 18)) AFTER carry_in
