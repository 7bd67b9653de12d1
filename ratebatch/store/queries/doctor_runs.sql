-- name:    doctor_runs
-- purpose: Runs that began before a time and never ended: their processes were killed, or still go on.
-- params:  before DateTime64(6, 'UTC'), after DateTime64(6, 'UTC')
-- reads:   job_runs, small
SELECT job, toString(run_id) AS run, any(host) AS at_host, min(started_at) AS began
FROM job_runs
WHERE started_at < {before:DateTime64(6, 'UTC')} AND started_at >= {after:DateTime64(6, 'UTC')}
GROUP BY job, run_id HAVING count() = countIf(state = 'running')
ORDER BY began LIMIT 20
