-- name:    insert_carry_look
-- purpose: Notes that changed carry-ins were looked for.
-- params:  looked_at DateTime64(6, 'UTC'), scopes, changed UInt64
INSERT INTO carry_looks (looked_at, scopes, changed)
SELECT {looked_at:DateTime64(6, 'UTC')}, {scopes:UInt64}, {changed:UInt64}
