-- name:    schedule_slots
-- purpose: For each job of the schedule, the last slot that a daemon ran to its end.
-- reads:   job_runs, small
-- why:     only a run that came to its end names its slot. One that was cut off with its daemon is made up for.
SELECT substring(job, length('schedule ') + 1) AS name, max(parseDateTimeBestEffort(counts['slot'], 'UTC')) AS slot
FROM job_runs
WHERE startsWith(job, 'schedule ') AND counts['slot'] != ''
GROUP BY name ORDER BY name
