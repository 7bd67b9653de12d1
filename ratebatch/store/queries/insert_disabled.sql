-- name:    insert_disabled
-- purpose: Settles the unrated periods of disabled scopes when a month is closed: commits of kind disabled.
-- params:  run_id UUID, period UInt32 (seconds), from, to DateTime('UTC'), reason, author String
-- reads:   the scopes with their windows, which the caller writes as a constant; the commits of [from, to)
INSERT INTO period_commits (scope, begin, end, revision, kind, run_id, reason, author)
WITH {period:UInt32} AS seconds
SELECT e.scope, e.begin, e.begin + seconds, c.revision + 1, 'disabled', {run_id:UUID}, {reason:String}, {author:String}
FROM (
    SELECT scope, toDateTime(arrayJoin(range(toUnixTimestamp(first), toUnixTimestamp(until), seconds)), 'UTC') AS begin FROM (/* SCOPES */)) AS e
LEFT JOIN (
    SELECT p.scope AS scope, p.begin AS begin, max(p.revision) AS revision, argMax(p.kind, p.rank) AS kind FROM period_commits AS p
    WHERE p.begin >= {from:DateTime('UTC')} AND p.begin < {to:DateTime('UTC')} AND p.run_id NOT IN (SELECT run_id FROM void_attempts)
    GROUP BY p.scope, p.begin) AS c ON e.scope = c.scope AND e.begin = c.begin
WHERE c.revision = 0 OR c.kind = 'reset'
