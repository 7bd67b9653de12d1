-- name:    insert_scope_failure
-- purpose: Notes why periods of a scope could not be rated while the others were.
-- params:  scope String, begin DateTime('UTC'), run_id UUID, error String
INSERT INTO scope_failures (scope, begin, run_id, error)
SELECT {scope:String}, {begin:DateTime('UTC')}, {run_id:UUID}, {error:String}
