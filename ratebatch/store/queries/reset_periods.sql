-- name:    reset_periods
-- purpose: What a reset would forget: the periods that count and begin at a time or later, per closed month, those of open
--          months (1970-01-01) together.
-- params:  scopes Array(String) (empty: all), but Array(String) (scopes left alone), to DateTime('UTC')
-- reads:   period_commits from the time on
SELECT arrayFirst(m -> at >= m.1 AND at < m.2, (SELECT groupArray((c.first, c.until, c.month)) FROM closed_months AS c)).3 AS month,
       count() AS periods, uniqExact(scope) AS scopes, min(at) AS first
FROM (
    SELECT p.scope AS scope, p.begin AS at, argMax(p.kind, p.rank) AS kind FROM period_commits AS p
    WHERE p.begin >= {to:DateTime('UTC')} AND (empty({scopes:Array(String)}) OR has({scopes:Array(String)}, p.scope)) AND NOT has({but:Array(String)}, p.scope)
      AND p.run_id NOT IN (SELECT run_id FROM void_attempts)
    GROUP BY p.scope, p.begin)
WHERE kind != 'reset'
GROUP BY month ORDER BY first
