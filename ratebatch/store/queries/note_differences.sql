-- name:    note_differences
-- purpose: Notes the scopes of an attempt that it must not commit, each with its first difference.
-- params:  run_id UUID
-- reads:   pass_periods and pass_lines of the attempt
-- why:     written before the commits, which leave out what is noted here under their run_id.
INSERT INTO scope_failures (scope, begin, run_id, error)
SELECT scope, begin, {run_id:UUID}, difference
FROM (/* query pass_differences */)
