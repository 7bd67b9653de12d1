-- name:    reset_split
-- purpose: One period that counts and would be cut in two by a reset at a time: it begins before and ends after it.
-- params:  scopes Array(String) (empty: all), but Array(String) (scopes left alone), to DateTime('UTC')
-- reads:   the commits of the day before
SELECT scope, begin, end FROM (
    SELECT p.scope AS scope, p.begin AS begin, argMax(p.end, p.rank) AS end, argMax(p.kind, p.rank) AS kind FROM period_commits AS p
    WHERE p.begin > {to:DateTime('UTC')} - 86400 AND p.begin < {to:DateTime('UTC')}
      AND (empty({scopes:Array(String)}) OR has({scopes:Array(String)}, p.scope)) AND NOT has({but:Array(String)}, p.scope) AND p.run_id NOT IN (SELECT run_id FROM void_attempts)
    GROUP BY p.scope, p.begin)
WHERE kind = 'rated' AND end > {to:DateTime('UTC')}
ORDER BY begin DESC LIMIT 1
