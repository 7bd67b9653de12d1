-- name:    delete_superseded_lines
-- purpose: Removes the lines of the commits that a retention run listed.
-- params:  run_id UUID
ALTER TABLE rated_lines DELETE WHERE key IN (SELECT key FROM retention_keys WHERE run_id = {run_id:UUID}) SETTINGS mutations_sync = 2
