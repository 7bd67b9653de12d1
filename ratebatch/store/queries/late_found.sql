-- name:    late_found
-- purpose: The periods of a look whose usage is not what was committed.
-- params:  run_id UUID (of the look), from, to DateTime('UTC'), metrics_digest String
-- reads:   pass_periods of the look, the window's commits
-- why:     a commit by another metric set counted other usage: it is outdated, not late. What was found before at the same
--          revision with the same usage is not found again.
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
WHERE c.kind = 'rated' AND c.metrics_digest = {metrics_digest:String} AND c.fingerprint != p.usage_fingerprint
  AND (p.scope, p.begin, c.revision, p.usage_fingerprint) NOT IN (SELECT scope, begin, revision, found_fingerprint FROM late_usage)
ORDER BY scope, begin
