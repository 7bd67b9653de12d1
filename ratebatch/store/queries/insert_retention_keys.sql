-- name:    insert_retention_keys
-- purpose: Writes down which commits a retention run removes.
-- params:  run_id UUID, before DateTime64(6, 'UTC'), exported Bool
-- reads:   superseded_keys
INSERT INTO retention_keys (run_id, scope, key, lines)
SELECT {run_id:UUID}, scope, key, of_lines FROM (
/* query superseded_keys */) WHERE may_go
