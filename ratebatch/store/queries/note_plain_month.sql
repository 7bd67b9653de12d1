-- name:    note_plain_month
-- purpose: Notes that every rated line of a month counts, if so.
-- params:  month UInt32 (YYYYMM), since DateTime64(6, 'UTC') (when the look began, the server's clock)
-- reads:   four columns of the month's commits, two of its lines, each grouped by scope and day
-- why:     a scope's day with one commit a period and as many lines as those commits say has no superseded, void or unfinished
--          lines: an attempt is committed only after its lines were counted. A closed month is noted before it is closed, for
--          what is rated in it afterwards counts as a correction only.
INSERT INTO plain_months (month, commits, lines, latest, voids, checked_at)
SELECT {month:UInt32}, sum(d.commits), sum(d.lines), max(d.latest), (SELECT uniqExactIf(v.run_id, NOT v.priced) FROM void_attempts AS v), {since:DateTime64(6, 'UTC')}
FROM (
    SELECT u.scope AS scope, u.day AS day, sum(u.commits) AS commits, sum(u.periods) AS periods, sum(u.said) AS said, sum(u.lines) AS lines, sum(u.void) AS void, max(u.latest) AS latest
    FROM (
        SELECT c.scope AS scope, toDate(c.begin) AS day, count() AS commits, uniqExact(c.begin) AS periods, sum(c.lines) AS said, 0 AS lines,
               countIf(c.run_id IN (SELECT run_id FROM void_attempts)) AS void, max(c.committed_at) AS latest
        FROM period_commits AS c WHERE toYYYYMM(c.begin) = {month:UInt32} GROUP BY c.scope, toDate(c.begin)
        UNION ALL
        SELECT l.scope, toDate(l.begin), 0, 0, 0, count(), 0, toDateTime64(0, 6, 'UTC')
        FROM rated_lines AS l WHERE toYYYYMM(l.begin) = {month:UInt32} GROUP BY l.scope, toDate(l.begin)) AS u
    GROUP BY u.scope, u.day) AS d
WHERE NOT arrayExists(m -> toYYYYMM(m.1) <= {month:UInt32} AND toYYYYMM(m.2 - 1) >= {month:UInt32}, (SELECT groupArray((k.first, k.until)) FROM closed_months AS k))
HAVING countIf(d.commits != d.periods OR d.said != d.lines OR d.void > 0) = 0 AND sum(d.commits) > 0
