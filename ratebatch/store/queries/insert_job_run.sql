-- name:    insert_job_run
-- purpose: One line of the run log: a run started or ended.
-- params:  run_id UUID, job String, state String, host String, pid UInt32, arguments Array(String), version String,
--          counts Map(String, String), error String, hint String, started_at DateTime64(6, 'UTC')
INSERT INTO job_runs (run_id, job, state, host, pid, arguments, version, counts, error, hint, started_at)
SELECT {run_id:UUID}, {job:String}, {state:String}, {host:String}, {pid:UInt32}, {arguments:Array(String)}, {version:String},
       {counts:Map(String, String)}, {error:String}, {hint:String}, {started_at:DateTime64(6, 'UTC')}
