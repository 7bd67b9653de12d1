-- name:    old_job_runs
-- purpose: How many rows of the run log are older than a time and neither a job's last run nor its last success.
-- params:  before DateTime64(6, 'UTC')
-- reads:   job_runs, small
SELECT count() FROM job_runs AS r
WHERE r.started_at < {before:DateTime64(6, 'UTC')}
  AND r.run_id NOT IN (SELECT argMax(k.run_id, k.started_at) FROM job_runs AS k GROUP BY k.job)
  AND r.run_id NOT IN (SELECT argMax(k.run_id, k.started_at) FROM job_runs AS k WHERE k.state = 'done' GROUP BY k.job)
