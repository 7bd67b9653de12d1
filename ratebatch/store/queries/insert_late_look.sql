-- name:    insert_late_look
-- purpose: Notes that late usage was looked for.
-- params:  looked_at DateTime64(6, 'UTC'), candidates, late, lost UInt64
INSERT INTO late_looks (looked_at, candidates, late, lost)
SELECT {looked_at:DateTime64(6, 'UTC')}, {candidates:UInt64}, {late:UInt64}, {lost:UInt64}
