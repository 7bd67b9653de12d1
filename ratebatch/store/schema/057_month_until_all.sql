-- table:   month_commits
-- purpose: The same for the Distributed table of a cluster; elsewhere it is the same table, and nothing changes.
ALTER TABLE {{view "month_commits"}} ADD COLUMN IF NOT EXISTS until DateTime('UTC') DEFAULT toDateTime(0, 'UTC') AFTER begin
