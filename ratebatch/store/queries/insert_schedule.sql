-- name:    insert_schedule
-- purpose: What is now true of a reprocessing schedule; the row written last counts.
-- params:  id UUID, scopes Array(String), begin, end DateTime('UTC'), state String, started_at DateTime64(6, 'UTC'),
--          done_until DateTime('UTC'), waiting, reason, author, error String, run_id UUID (of the run that executes it), created_at DateTime64(6, 'UTC')
INSERT INTO reprocess_schedules (id, scopes, begin, end, state, started_at, done_until, waiting, reason, author, error, run_id, created_at)
SELECT {id:UUID}, {scopes:Array(String)}, {begin:DateTime('UTC')}, {end:DateTime('UTC')}, {state:String}, {started_at:DateTime64(6, 'UTC')},
       {done_until:DateTime('UTC')}, {waiting:String}, {reason:String}, {author:String}, {error:String}, {run_id:UUID}, {created_at:DateTime64(6, 'UTC')}
