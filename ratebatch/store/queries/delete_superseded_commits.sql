-- name:    delete_superseded_commits
-- purpose: Removes the commits that a retention run listed, after their lines.
-- params:  run_id UUID
ALTER TABLE period_commits DELETE WHERE key IN (SELECT key FROM retention_keys WHERE run_id = {run_id:UUID}) SETTINGS mutations_sync = 2
