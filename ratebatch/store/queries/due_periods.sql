-- name:    due_periods
-- purpose: The periods of [from, to) that are due, with the revision they get next and the usage rows they were committed with.
-- params:  from, to DateTime('UTC'), period UInt32 (seconds), closed Array(Date) (first days of months), metrics_digest String
-- reads:   period_commits of the window, grouped by period; the scopes with their windows [first, until) stand for SCOPES
-- why:     a period is due when it has no current commit of kind rated, when that commit was made before the window's again,
--          or when commits of its highest revision disagree.
WITH
    {period:UInt32} AS seconds,
    conflicts AS (
        SELECT scope, begin, revision FROM period_commits
        WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')} AND run_id NOT IN (SELECT run_id FROM void_attempts)
        GROUP BY scope, begin, revision
        HAVING count() > 1 AND uniqExact(plan_digest, metrics_digest, usage_fingerprint) > 1)
SELECT e.scope AS scope, e.begin AS begin, c.revision + 1 AS revision,
       if(c.kind = 'rated' AND c.metrics_digest = {metrics_digest:String}, c.usage_rows, 0) AS committed_rows
FROM (
    SELECT scope, again, toDateTime(arrayJoin(range(toUnixTimestamp(greatest(first, {from:DateTime('UTC')})),
                                             toUnixTimestamp(least(until, {to:DateTime('UTC')})), seconds)), 'UTC') AS begin
    FROM (/* SCOPES */)
    WHERE first < {to:DateTime('UTC')} AND until > {from:DateTime('UTC')}) AS e
LEFT JOIN (
    SELECT scope, begin, max(p.revision) AS revision, argMax(p.kind, p.rank) AS kind, argMax(p.usage_rows, p.rank) AS usage_rows,
           argMax(toString(p.metrics_digest), p.rank) AS metrics_digest, argMax(toUnixTimestamp64Micro(p.committed_at), p.rank) AS committed
    FROM period_commits AS p
    WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')} AND run_id NOT IN (SELECT run_id FROM void_attempts)
    GROUP BY scope, begin) AS c ON e.scope = c.scope AND e.begin = c.begin
WHERE toStartOfMonth(e.begin) NOT IN {closed:Array(Date)}
  AND (c.revision = 0 OR c.kind != 'rated' OR c.committed < e.again OR (e.scope, e.begin, c.revision) IN (SELECT scope, begin, revision FROM conflicts))
