-- name:    scope_failures
-- purpose: The last failure of each scope that nothing has ended since: neither a commit of its period nor a row without an error.
-- reads:   scope_failures, small; of period_commits, by its key, the periods that failed
-- why:     a look for late usage notes its failures under no run: they are about periods that are rated already.
SELECT scope, begin, error, failed, of_look
FROM (
    SELECT f.scope AS scope, f.run_id = toUUID('00000000-0000-0000-0000-000000000000') AS of_look,
        argMax(f.begin, f.failed_at) AS begin, argMax(f.error, f.failed_at) AS error, max(f.failed_at) AS failed
    FROM scope_failures AS f
    WHERE (f.scope, f.begin) NOT IN (
        SELECT p.scope, p.begin FROM period_commits AS p INNER JOIN scope_failures AS g ON p.scope = g.scope AND p.begin = g.begin
        WHERE (p.scope, p.begin) IN (SELECT scope, begin FROM scope_failures) AND p.kind = 'rated' AND p.committed_at > g.failed_at AND p.run_id NOT IN (SELECT run_id FROM void_attempts))
    GROUP BY f.scope, of_look)
WHERE error != ''
ORDER BY scope, of_look
