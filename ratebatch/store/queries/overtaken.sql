-- name:    overtaken
-- purpose: Periods of an attempt where another attempt's commit of that revision came first and was rated by something else.
-- params:  run_id UUID, from, to DateTime('UTC'), metrics_digest String, boundaries Array(DateTime('UTC')), plan_digests Array(String)
-- reads:   pass_periods of the attempt, the window's commits
-- why:     such a period is due again at the next revision (ARCHITECTURE.md, Exactly once); the moment is that of the commit that came first.
SELECT p.scope AS scope, p.begin AS begin, p.end AS end, c.committed AS committed
FROM (SELECT * FROM pass_periods WHERE run_id = {run_id:UUID} AND NOT lost) AS p
INNER JOIN (
    SELECT k.scope AS scope, k.begin AS begin, argMax(k.run_id, k.rank) AS winner, max(k.revision) AS revision, argMax(k.usage_fingerprint, k.rank) AS fingerprint,
           argMax(toString(k.plan_digest), k.rank) AS plan_digest, argMax(toString(k.metrics_digest), k.rank) AS metrics_digest,
           argMax(k.kind, k.rank) AS kind, argMax(k.committed_at, k.rank) AS committed
    FROM period_commits AS k
    WHERE k.begin >= {from:DateTime('UTC')} AND k.begin < {to:DateTime('UTC')} AND k.run_id NOT IN (SELECT run_id FROM void_attempts)
    GROUP BY k.scope, k.begin) AS c ON p.scope = c.scope AND p.begin = c.begin
WHERE c.winner != {run_id:UUID} AND c.revision = p.revision AND c.kind = 'rated'
  AND (c.fingerprint != p.usage_fingerprint OR c.metrics_digest != {metrics_digest:String}
       OR c.plan_digest != {plan_digests:Array(String)}[1 + arrayCount(t -> p.begin >= t, {boundaries:Array(DateTime('UTC'))})])
ORDER BY scope, begin LIMIT 10000
