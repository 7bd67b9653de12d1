-- name:    note_kept_since
-- purpose: Notes that what a table held before a moment may be gone although its TTL does not say so.
-- params:  table String, since DateTime('UTC'), reason String
INSERT INTO kept_since (tier, since, reason)
SELECT {table:String}, {since:DateTime('UTC')}, {reason:String}
