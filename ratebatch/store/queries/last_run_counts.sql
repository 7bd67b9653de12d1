-- name:    last_run_counts
-- purpose: What the last run of a job, or of a shard of it, that rated periods noted, some of its counts.
-- params:  job String, names Array(String)
-- reads:   job_runs, small
SELECT mapFilter((k, v) -> has({names:Array(String)}, k), CAST(counts, 'Map(String, String)')) AS noted
FROM job_runs WHERE (job = {job:String} OR startsWith(job, concat({job:String}, ' '))) AND state != 'running' AND toUInt64OrZero(counts['periods']) > 0
ORDER BY written_at DESC LIMIT 1
