-- name:    void_attempt
-- purpose: Says that an attempt's lines and commits count for nothing, whatever it writes later.
-- params:  run_id UUID, reason String
INSERT INTO void_attempts (run_id, reason)
SELECT {run_id:UUID}, {reason:String}
