-- name:    delete_void_lines
-- purpose: Removes the lines of attempts that are void.
-- params:  run_ids Array(UUID)
ALTER TABLE rated_lines DELETE WHERE has({run_ids:Array(UUID)}, run_id) SETTINGS mutations_sync = 2
