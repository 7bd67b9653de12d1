-- name:    web_runs
-- purpose: Runs of jobs as they ended, the newest first.
-- params:  job, state String ('' for any), limit, skip UInt32
-- reads:   job_runs
SELECT run_id, toString(job), toString(of_state), toString(host), toString(version), arguments, CAST(counts, 'Map(String, String)'), error, hint, started_at, ended_at, count() OVER () AS total
FROM (
    SELECT r.run_id AS run_id, any(r.job) AS job, argMax(r.state, r.written_at) AS of_state, any(r.host) AS host, any(r.version) AS version, any(r.arguments) AS arguments,
           argMax(r.counts, r.written_at) AS counts, argMax(r.error, r.written_at) AS error, argMax(r.hint, r.written_at) AS hint, min(r.started_at) AS started_at, max(r.written_at) AS ended_at
    FROM job_runs AS r
    WHERE {job:String} = '' OR r.job = {job:String}
    GROUP BY r.run_id)
WHERE {state:String} = '' OR toString(of_state) = {state:String}
ORDER BY started_at DESC, run_id LIMIT {limit:UInt32} OFFSET {skip:UInt32}
