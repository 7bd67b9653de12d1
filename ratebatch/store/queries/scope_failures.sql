-- name:    scope_failures
-- purpose: The last failure of each scope that was not rated since.
-- reads:   scope_failures, small; the commits of the periods that failed
SELECT f.scope AS scope, argMax(f.begin, f.failed_at) AS begin, argMax(f.error, f.failed_at) AS error, max(f.failed_at) AS failed
FROM scope_failures AS f
WHERE (f.scope, f.begin) NOT IN (
    SELECT p.scope, p.begin FROM period_commits AS p INNER JOIN scope_failures AS g ON p.scope = g.scope AND p.begin = g.begin
    WHERE p.kind = 'rated' AND p.committed_at > g.failed_at AND p.run_id NOT IN (SELECT run_id FROM void_attempts))
GROUP BY f.scope ORDER BY f.scope
