-- name:    due_check
-- purpose: Per day (UTC) that is not wholly rated: how many periods have no commit at all for sure, and how many scopes
--          need a closer look (due_days), of which at most 2001 are named.
-- params:  period UInt32 (seconds), closed Array(Date) (first days of months not to look at), from, to DateTime('UTC')
-- reads:   the scopes with their windows, which the caller writes as a constant; period_commits once, grouped by scope and day
-- why:     grouping millions of commits by period costs seconds, by day a tenth of it. A day of a scope is wholly rated when
--          its commits are as many as expected, all rated and not older than asked for, and the sum of a hash of their begins is
--          that of the expected ones: then each period has exactly one commit.
WITH {period:UInt32} AS seconds
SELECT e.day AS day, sumIf(e.expected, c.commits = 0) AS never, countIf(c.commits > 0) AS unclear, groupUniqArrayIf(2001)(e.scope, c.commits > 0) AS scopes
FROM (
    SELECT scope, day, sum(length(begins)) AS expected, sum(arraySum(arrayMap(x -> cityHash64(x), begins))) AS hash, max(again) AS again
    FROM (
        SELECT scope, again, day,
               range(greatest(toUnixTimestamp(first), toUnixTimestamp(toDateTime(day, 'UTC'))), least(toUnixTimestamp(until), toUnixTimestamp(toDateTime(day + 1, 'UTC'))), seconds) AS begins
        FROM (
            SELECT scope, first, until, again, arrayJoin(arrayMap(i -> toDate(first) + i, range(toUInt32(toDate(until - 1) - toDate(first)) + 1))) AS day
            FROM (/* SCOPES */) WHERE until > first)
        WHERE toStartOfMonth(day) NOT IN {closed:Array(Date)})
    GROUP BY scope, day) AS e
LEFT JOIN (
    SELECT p.scope AS scope, toDate(p.begin) AS day, count() AS commits, sum(cityHash64(toUnixTimestamp(p.begin))) AS hash, countIf(p.kind != 'rated') AS others,
           min(toUnixTimestamp64Micro(p.committed_at)) AS oldest
    FROM period_commits AS p
    WHERE p.begin >= {from:DateTime('UTC')} AND p.begin < {to:DateTime('UTC')} AND toStartOfMonth(p.begin) NOT IN {closed:Array(Date)}
      AND p.run_id NOT IN (SELECT run_id FROM void_attempts)
    GROUP BY scope, day) AS c ON e.scope = c.scope AND e.day = c.day
WHERE e.expected > 0 AND NOT (c.commits = e.expected AND c.hash = e.hash AND c.others = 0 AND c.oldest >= e.again)
GROUP BY day ORDER BY day
