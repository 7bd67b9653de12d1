-- name:    due_days
-- purpose: Per day (UTC), how many periods of the run's scopes are due, so that a pass can be cut to a bounded size.
-- params:  period UInt32 (seconds), closed Array(Date) (first days of closed months)
-- reads:   the scopes with their windows [first, until), which the caller writes as a constant; period_commits grouped once
-- why:     due is a difference of counts, so a hole is due wherever it lies and no list of periods leaves the server.
--          A period whose highest revision has commits that disagree is due again (DESIGN § 5, point 4).
WITH
    {period:UInt32} AS seconds,
    states AS (
        SELECT c.scope AS scope, c.begin AS begin, max(c.revision) AS revision, argMax(c.kind, c.rank) AS kind
        FROM period_commits AS c
        INNER JOIN (SELECT scope, first, until FROM (/* SCOPES */)) AS s ON c.scope = s.scope
        WHERE c.begin >= s.first AND c.begin < s.until AND c.run_id NOT IN (SELECT run_id FROM void_attempts)
          AND toUnixTimestamp(c.end) - toUnixTimestamp(c.begin) = seconds
        GROUP BY c.scope, c.begin),
    conflicts AS (
        SELECT scope, begin, revision FROM period_commits
        WHERE run_id NOT IN (SELECT run_id FROM void_attempts)
        GROUP BY scope, begin, revision
        HAVING count() > 1 AND uniqExact(plan_digest, metrics_digest, usage_fingerprint) > 1)
SELECT day, toUInt64(sum(expected) - sum(rated)) AS due
FROM (
    SELECT day,
           intDiv(toUnixTimestamp(least(until, toDateTime(day + 1, 'UTC'))) - toUnixTimestamp(greatest(first, toDateTime(day, 'UTC'))), seconds) AS expected,
           0 AS rated
    FROM (
        SELECT first, until, arrayJoin(arrayMap(i -> toDate(first) + i, range(toUInt32(toDate(until - 1) - toDate(first)) + 1))) AS day
        FROM (/* SCOPES */) WHERE until > first)
    UNION ALL
    SELECT toDate(begin) AS day, 0 AS expected, count() AS rated
    FROM states
    WHERE kind = 'rated' AND (scope, begin, revision) NOT IN (SELECT scope, begin, revision FROM conflicts)
    GROUP BY day)
WHERE toStartOfMonth(day) NOT IN {closed:Array(Date)}
GROUP BY day HAVING sum(expected) > sum(rated) ORDER BY day
