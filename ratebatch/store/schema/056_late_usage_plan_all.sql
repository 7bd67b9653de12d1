-- table:   late_usage
-- purpose: The same for the Distributed table of a cluster; elsewhere it is the same table, and nothing changes.
ALTER TABLE {{view "late_usage"}} ADD COLUMN IF NOT EXISTS plan_total Decimal(76, 18) DEFAULT found_total AFTER found_total
