-- name:    doctor_off_grid
-- purpose: Per scope, the current commits whose begin is not on the grid of their length, as long as the period that each begins in
--          was not rated after it: how many, and the first and the last such period's begin.
-- reads:   three narrow columns of period_commits; only such commits and the periods that they lie in are looked at closer
-- why:     an earlier build began periods where a metric set or plan that was applied within one took over. Usage has the
--          grid's begins, so such a commit bills nothing, but the period it lies in may have been rated by a part of its usage.
WITH
    off AS (
        SELECT o.scope AS scope, o.begin AS begin FROM period_commits AS o
        WHERE toUnixTimestamp(o.begin) % greatest(toUnixTimestamp(o.end) - toUnixTimestamp(o.begin), 1) != 0),
    odd AS (
        SELECT p.scope AS scope, p.begin AS begin, argMax(p.kind, p.rank) AS kind, argMax(p.committed_at, p.rank) AS committed,
               toUnixTimestamp(argMax(p.end, p.rank)) - toUnixTimestamp(p.begin) AS seconds
        FROM period_commits AS p
        WHERE (p.scope, p.begin) IN (SELECT scope, begin FROM off) AND p.run_id NOT IN (SELECT run_id FROM void_attempts)
        GROUP BY p.scope, p.begin),
    within AS (
        SELECT scope, toDateTime(toUnixTimestamp(begin) - toUnixTimestamp(begin) % seconds, 'UTC') AS of, max(committed) AS committed
        FROM odd WHERE kind = 'rated' AND seconds > 0 AND toUnixTimestamp(begin) % seconds != 0
        GROUP BY scope, of)
SELECT w.scope AS scope, count() AS periods, min(w.of) AS first, max(w.of) AS last
FROM within AS w
LEFT JOIN (
    SELECT c.scope AS scope, c.begin AS begin, argMax(c.kind, c.rank) AS kind, argMax(c.committed_at, c.rank) AS committed
    FROM period_commits AS c
    WHERE (c.scope, c.begin) IN (SELECT scope, of FROM within) AND c.run_id NOT IN (SELECT run_id FROM void_attempts)
    GROUP BY c.scope, c.begin) AS r ON r.scope = w.scope AND r.begin = w.of
WHERE NOT (r.kind = 'rated' AND r.committed > w.committed)
GROUP BY w.scope ORDER BY w.scope LIMIT 1000
