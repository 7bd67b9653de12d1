-- name:    before_first
-- purpose: Per scope, the usage before its first period: bucket before_first, which nobody is billed for.
-- params:  from, to DateTime('UTC'), period UInt32 (seconds)
-- reads:   usage of the windows (the text of package metric stands for USAGE), for the scopes with their windows, which the caller writes
--          as a constant; the commits of [from, to)
-- why:     usage that lies before everything that is rated must not be missing without a word. A period that was reset is not
--          rated; one of a disabled scope is settled.
SELECT u.scope AS scope, count() AS usage_rows, uniqExact(u.begin) AS periods, min(u.begin) AS first_begin, max(u.begin) AS last_begin
FROM (/* USAGE */) AS u
INNER JOIN (SELECT scope, first, until FROM (/* SCOPES */)) AS w ON u.scope = w.scope
WHERE u.begin >= w.first AND u.begin < w.until
  AND (u.scope, u.begin) NOT IN (
      SELECT scope, begin FROM period_commits
      WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')} AND run_id NOT IN (SELECT run_id FROM void_attempts)
      GROUP BY scope, begin HAVING argMax(kind, rank) IN ('rated', 'disabled'))
GROUP BY u.scope ORDER BY u.scope
