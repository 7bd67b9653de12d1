-- name:    is_void
-- purpose: Whether an attempt is void.
-- params:  run_id UUID
-- reads:   void_attempts by its key
SELECT count() > 0 FROM void_attempts WHERE run_id = {run_id:UUID}
