-- table:   job_runs
-- purpose: The same for the Distributed table of a cluster; elsewhere it is the same table, and nothing changes.
ALTER TABLE {{view "job_runs"}} MODIFY COLUMN state Enum8('running' = 1, 'done' = 2, 'failed' = 3, 'interrupted' = 4)
