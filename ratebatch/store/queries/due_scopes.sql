-- name:    due_scopes
-- purpose: The scopes that have periods without a rated current commit in their windows, with how many and the first of them.
-- params:  period UInt32 (seconds), from, to DateTime('UTC')
-- reads:   the scopes with their windows, which the caller writes as a constant; the commits of [from, to)
-- why:     for people: what keeps a month from being closed. Conflicts are among them.
WITH {period:UInt32} AS seconds,
    conflicts AS (
        SELECT p.scope AS scope, p.begin AS begin, p.revision AS revision FROM period_commits AS p
        WHERE p.begin >= {from:DateTime('UTC')} AND p.begin < {to:DateTime('UTC')} AND p.run_id NOT IN (SELECT run_id FROM void_attempts)
        GROUP BY p.scope, p.begin, p.revision
        HAVING count() > 1 AND uniqExact(p.plan_digest, p.metrics_digest, p.usage_fingerprint) > 1)
SELECT e.scope AS scope, count() AS periods, min(e.begin) AS first, countIf(c.kind = 'rated' AND c.revision > 0) AS in_conflict
FROM (
    SELECT scope, toDateTime(arrayJoin(range(toUnixTimestamp(first), toUnixTimestamp(until), seconds)), 'UTC') AS begin FROM (/* SCOPES */)) AS e
LEFT JOIN (
    SELECT p.scope AS scope, p.begin AS begin, max(p.revision) AS revision, argMax(p.kind, p.rank) AS kind FROM period_commits AS p
    WHERE p.begin >= {from:DateTime('UTC')} AND p.begin < {to:DateTime('UTC')} AND p.run_id NOT IN (SELECT run_id FROM void_attempts)
    GROUP BY p.scope, p.begin) AS c ON e.scope = c.scope AND e.begin = c.begin
WHERE c.revision = 0 OR c.kind != 'rated' OR (e.scope, e.begin, c.revision) IN (SELECT scope, begin, revision FROM conflicts)
GROUP BY e.scope ORDER BY e.scope LIMIT 1000
