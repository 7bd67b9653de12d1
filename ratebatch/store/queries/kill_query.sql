-- name:    kill_query
-- purpose: Ends a statement and waits until it is gone.
-- params:  query_id String
-- reads:   system.processes
-- why:     a statement whose answer was lost may still be writing.
KILL QUERY WHERE query_id = {query_id:String} SYNC
