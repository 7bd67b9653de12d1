-- name:    void_attempt
-- purpose: Says that an attempt's lines and commits count for nothing, whatever it writes later.
-- params:  run_id UUID, reason String, priced Bool (from its begin on, to price only: it never has commits)
INSERT INTO void_attempts (run_id, reason, priced)
SELECT {run_id:UUID}, {reason:String}, {priced:Bool}
