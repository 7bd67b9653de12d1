-- name:    reconcile_usage
-- purpose: Usage as it is now beside what was committed of it, period by period, summed up.
-- params:  from, to DateTime('UTC'), as_of DateTime64(6, 'UTC'), month Date, closed UInt32
-- reads:   usage of the window (the text of package metric stands for USAGE), period_commits of the window
-- why:     changed counts rated periods whose usage has another fingerprint than at their commit: late usage, or lost if
--          there are fewer rows than were committed. Usage without a commit lies before a scope's first period, is not
--          ready yet, or is of a disabled scope.
SELECT sum(u.usage_rows) AS usage_rows, sumIf(u.usage_rows, c.rated) AS in_commits, sumIf(u.usage_rows, NOT c.rated) AS without_commit,
       sumIf(c.usage_rows, c.rated) AS committed, sumIf(u.used, c.rated) AS quantity,
       countIf(c.rated AND u.fingerprint != c.usage_fingerprint) AS changed, countIf(c.rated AND u.usage_rows < c.usage_rows) AS lost,
       countIf(c.rated) AS periods
FROM (
    SELECT scope, begin, count() AS usage_rows, sum(cityHash64(region, metric, resource, attributes, qty)) AS fingerprint, sum(toDecimal256(qty, 18)) AS used
    FROM (/* USAGE */)
    GROUP BY scope, begin) AS u
FULL JOIN (
    SELECT scope, begin, argMax(kind, rank) = 'rated' AS rated, argMax(usage_rows, rank) AS usage_rows, argMax(usage_fingerprint, rank) AS usage_fingerprint
    FROM period_commits
    WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')} AND committed_at <= {as_of:DateTime64(6, 'UTC')}
      AND run_id NOT IN (SELECT run_id FROM void_attempts WHERE voided_at <= {as_of:DateTime64(6, 'UTC')})
      AND ({closed:UInt32} = 0 OR key IN (SELECT key FROM month_commits WHERE month = {month:Date} AND closed = {closed:UInt32} AND kind = 'commit'))
    GROUP BY scope, begin) AS c ON u.scope = c.scope AND u.begin = c.begin
