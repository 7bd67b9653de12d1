-- table:   job_runs
-- purpose: A run that was cancelled or ran out of its time is interrupted, not failed: nothing is wrong with it.
ALTER TABLE {{table "job_runs"}} MODIFY COLUMN state Enum8('running' = 1, 'done' = 2, 'failed' = 3, 'interrupted' = 4)
