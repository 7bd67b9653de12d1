-- name:    late_found
-- purpose: The periods of a look whose usage is not what was committed, and those whose usage is that again.
-- params:  run_id UUID (of the look), from, to DateTime('UTC'), metrics_digest String
-- reads:   pass_periods of the look, the window's commits; late_usage, small
-- why:     a commit by another metric set counted other usage: it is outdated, not late. What was found last at the same
--          revision with the same usage is not found again. A finding that stands is closed by one that says the usage is back.
SELECT p.scope AS scope, p.begin AS begin, p.end AS end, c.revision AS revision, c.usage_rows AS committed_rows, c.fingerprint AS committed_fingerprint,
       p.usage_rows AS found_rows, p.usage_fingerprint AS found_fingerprint, c.currency AS currency, c.total AS total, c.plan_digest AS plan_digest
FROM (SELECT * FROM pass_periods WHERE run_id = {run_id:UUID}) AS p
INNER JOIN (
    SELECT k.scope AS scope, k.begin AS begin, argMax(k.revision, k.rank) AS revision, argMax(k.kind, k.rank) AS kind, argMax(k.usage_rows, k.rank) AS usage_rows,
           argMax(k.usage_fingerprint, k.rank) AS fingerprint, argMax(toString(k.metrics_digest), k.rank) AS metrics_digest,
           argMax(toString(k.currency), k.rank) AS currency, argMax(toString(k.plan_digest), k.rank) AS plan_digest, argMax(k.total, k.rank) AS total
    FROM period_commits AS k
    WHERE k.begin >= {from:DateTime('UTC')} AND k.begin < {to:DateTime('UTC')} AND k.run_id NOT IN (SELECT run_id FROM void_attempts)
    GROUP BY k.scope, k.begin) AS c ON p.scope = c.scope AND p.begin = c.begin
LEFT JOIN (
    SELECT l.scope AS scope, l.begin AS begin, argMax(l.revision, l.found_at) AS revision, argMax(l.found_fingerprint, l.found_at) AS fingerprint,
           argMax(toString(l.action), l.found_at) AS action
    FROM late_usage AS l WHERE l.begin >= {from:DateTime('UTC')} AND l.begin < {to:DateTime('UTC')} GROUP BY l.scope, l.begin) AS f ON p.scope = f.scope AND p.begin = f.begin
WHERE c.kind = 'rated' AND c.metrics_digest = {metrics_digest:String}
  AND if(c.fingerprint = p.usage_fingerprint,
         f.revision = c.revision AND f.fingerprint != c.fingerprint AND f.action != 'ignore',
         f.revision != c.revision OR f.fingerprint != p.usage_fingerprint)
ORDER BY scope, begin
