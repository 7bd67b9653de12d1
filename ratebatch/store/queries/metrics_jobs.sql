-- name:    metrics_jobs
-- purpose: For each job, its last run that ended, with its counts, and when it last ended well.
-- reads:   job_runs, small
SELECT job, argMaxIf(toString(state), (started_at, written_at), state != 'running') AS last_state,
       maxIf(started_at, state != 'running') AS last_start, argMaxIf(written_at, (started_at, written_at), state != 'running') AS last_end,
       maxIf(written_at, state = 'done') AS last_success,
       argMaxIf(counts, (started_at, written_at), state != 'running') AS last_counts
FROM job_runs
GROUP BY job HAVING countIf(state != 'running') > 0
ORDER BY job
