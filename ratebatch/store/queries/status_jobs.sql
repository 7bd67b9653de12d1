-- name:    status_jobs
-- purpose: The last run of each job and how it ended.
-- reads:   job_runs, small
SELECT job, argMax(run_id, started_at) AS run_id, argMax(state, (started_at, written_at)) AS state, max(r.started_at) AS last_start,
       argMax(error, (started_at, written_at)) AS error, argMax(hint, (started_at, written_at)) AS hint,
       maxIf(written_at, state_is_done) AS last_success
FROM (SELECT *, state = 'done' AS state_is_done FROM job_runs) AS r
GROUP BY job ORDER BY job
