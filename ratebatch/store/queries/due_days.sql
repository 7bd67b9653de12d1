-- name:    due_days
-- purpose: Per day (UTC), how many periods are due: exactly, for the days and scopes that due_check left open.
-- params:  period UInt32 (seconds), from, to DateTime('UTC') (bounds of the days)
-- reads:   the scopes with their windows [first, until), and the pairs of day and scope for DAYS, which the caller writes as
--          constants; those pairs' commits, grouped once
-- why:     due is a difference of counts, so a hole is due wherever it lies and no list of periods leaves the server.
--          A period whose highest revision has commits that disagree is due again (ARCHITECTURE.md, Exactly once), one whose commit is
--          older than the window's again is due for a reprocess. A commit whose begin is none of the window's periods makes up
--          for no hole.
WITH
    {period:UInt32} AS seconds,
    conflicts AS (
        SELECT p.scope AS scope, p.begin AS begin, p.revision AS revision
        FROM period_commits AS p
        WHERE p.begin >= {from:DateTime('UTC')} AND p.begin < {to:DateTime('UTC')} AND (toDate(p.begin), p.scope) IN (SELECT day, scope FROM (/* DAYS */))
          AND p.run_id NOT IN (SELECT run_id FROM void_attempts)
        GROUP BY p.scope, p.begin, p.revision
        HAVING count() > 1 AND uniqExact(p.plan_digest, p.metrics_digest, p.usage_fingerprint) > 1)
SELECT day, toUInt64(sum(expected) - sum(rated)) AS due
FROM (
    SELECT day,
           intDiv(toUnixTimestamp(least(until, toDateTime(day + 1, 'UTC'))) - toUnixTimestamp(greatest(first, toDateTime(day, 'UTC'))), seconds) AS expected,
           0 AS rated
    FROM (
        SELECT scope, first, until, arrayJoin(arrayMap(i -> toDate(first) + i, range(toUInt32(toDate(until - 1) - toDate(first)) + 1))) AS day
        FROM (/* SCOPES */) WHERE until > first)
    WHERE (day, scope) IN (SELECT day, scope FROM (/* DAYS */))
    UNION ALL
    SELECT toDate(s.begin) AS day, 0 AS expected, count() AS rated
    FROM (
        SELECT p.scope AS scope, p.begin AS begin, max(p.revision) AS revision, argMax(p.kind, p.rank) AS kind,
               argMax(toUnixTimestamp64Micro(p.committed_at), p.rank) AS committed, count() AS commits
        FROM period_commits AS p
        WHERE p.begin >= {from:DateTime('UTC')} AND p.begin < {to:DateTime('UTC')} AND (toDate(p.begin), p.scope) IN (SELECT day, scope FROM (/* DAYS */))
          AND p.run_id NOT IN (SELECT run_id FROM void_attempts)
        GROUP BY p.scope, p.begin) AS s
    INNER JOIN (SELECT scope, first, until, again FROM (/* SCOPES */)) AS w ON s.scope = w.scope
    WHERE s.begin >= w.first AND s.begin < w.until AND (toUnixTimestamp(s.begin) - toUnixTimestamp(w.first)) % seconds = 0
      AND s.kind = 'rated' AND s.committed >= w.again
      AND (s.commits = 1 OR (s.scope, s.begin, s.revision) NOT IN (SELECT scope, begin, revision FROM conflicts))
    GROUP BY day)
GROUP BY day HAVING sum(expected) > sum(rated) ORDER BY day
