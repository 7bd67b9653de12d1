-- name:    delete_job_runs
-- purpose: Removes those rows.
-- params:  before DateTime64(6, 'UTC')
ALTER TABLE job_runs DELETE WHERE started_at < {before:DateTime64(6, 'UTC')}
  AND run_id NOT IN (SELECT argMax(k.run_id, k.started_at) FROM job_runs AS k GROUP BY k.job)
  AND run_id NOT IN (SELECT argMax(k.run_id, k.started_at) FROM job_runs AS k WHERE k.state = 'done' GROUP BY k.job)
SETTINGS mutations_sync = 2
