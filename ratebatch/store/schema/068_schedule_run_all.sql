-- table:   reprocess_schedules
-- purpose: The same for the Distributed table of a cluster; elsewhere it is the same table, and nothing changes.
ALTER TABLE {{view "reprocess_schedules"}} ADD COLUMN IF NOT EXISTS run_id UUID AFTER error
