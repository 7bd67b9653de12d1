-- name:    insert_resets
-- purpose: Forgets the periods that count and begin at a time or later: a commit of kind reset at the next revision.
-- params:  run_id UUID, scopes Array(String) (empty: all), but Array(String) (scopes left alone), to DateTime('UTC'), reason String, author String
-- reads:   period_commits from the time on
-- why:     each row stands alone, so a reset that was cut is completed by the same command. Closed months are left alone even
--          if one was closed since the command looked.
INSERT INTO period_commits (scope, begin, end, revision, kind, run_id, reason, author)
SELECT scope, begin, end, revision + 1, 'reset', {run_id:UUID}, {reason:String}, {author:String}
FROM (
    SELECT p.scope AS scope, p.begin AS begin, argMax(p.end, p.rank) AS end, max(p.revision) AS revision, argMax(p.kind, p.rank) AS kind
    FROM period_commits AS p
    WHERE p.begin >= {to:DateTime('UTC')} AND (empty({scopes:Array(String)}) OR has({scopes:Array(String)}, p.scope)) AND NOT has({but:Array(String)}, p.scope)
      AND NOT arrayExists(m -> p.begin >= m.1 AND p.begin < m.2, (SELECT groupArray((c.first, c.until)) FROM closed_months AS c)) AND p.run_id NOT IN (SELECT run_id FROM void_attempts)
    GROUP BY p.scope, p.begin)
WHERE kind != 'reset'
