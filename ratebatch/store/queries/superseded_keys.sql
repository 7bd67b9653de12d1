-- name:    superseded_keys
-- purpose: Commits that count no more because a rated one took their place before a time, and whether they may be removed.
-- params:  before DateTime64(6, 'UTC'), exported Bool (whether the month must have been exported since)
-- reads:   period_commits twice; exports and month_commits, small
-- why:     what a close ever froze stays. What was rated again and not exported since stays too: the last delivery still shows it.
SELECT p.scope AS scope, p.key AS key, p.lines AS of_lines,
       NOT {exported:Bool} OR c.committed <= e.latest AS may_go
FROM period_commits AS p
INNER JOIN (
    SELECT k.scope AS scope, k.begin AS begin, max(k.rank) AS rank, argMax(k.kind, k.rank) AS kind, argMax(k.committed_at, k.rank) AS committed
    FROM period_commits AS k WHERE k.run_id NOT IN (SELECT run_id FROM void_attempts) GROUP BY k.scope, k.begin
    HAVING count() > 1) AS c ON p.scope = c.scope AND p.begin = c.begin
LEFT JOIN (SELECT x.month AS month, max(x.exported_at) AS latest FROM exports AS x GROUP BY x.month) AS e ON toDate(toStartOfMonth(p.begin, (SELECT zone FROM billing_zone))) = e.month
WHERE p.rank != c.rank AND c.kind = 'rated' AND c.committed < {before:DateTime64(6, 'UTC')}
  AND p.key NOT IN (SELECT key FROM month_commits WHERE kind = 'commit') AND p.run_id NOT IN (SELECT run_id FROM void_attempts)
