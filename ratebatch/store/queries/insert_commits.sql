-- name:    insert_commits
-- purpose: Makes the lines of an attempt count, period by period.
-- params:  run_id UUID, asked Bool, from, to DateTime('UTC'), boundaries Array(DateTime('UTC')), plan_digests Array(String),
--          currencies Array(String) (one more than boundaries), metrics_digest String, reason String, author String
-- reads:   pass_periods, pass_lines, pass_carries (of tiered pricing; else none) and scope_failures of the attempt, the window's commits
-- why:     each row stands alone, so a cut in the middle of the statement leaves some periods committed and the others due.
--          A period that has a commit of this revision by now is left out: the other attempt came first. So is one whose month
--          was closed meanwhile, unless the period was asked for, when it is a correction of the closed month. Of a scope
--          with any difference (note_differences) nothing is committed: its carry-ins and charges may rest on the period that differs.
INSERT INTO period_commits (scope, begin, end, revision, kind, run_id, plan_digest, metrics_digest, currency, usage_rows, usage_fingerprint,
                            usage_read_at, lines, line_digest, total, unpriced, rejected, skipped, carry_in, used, reason, author)
SELECT p.scope, p.begin, p.end, p.revision, 'rated', p.run_id,
       {plan_digests:Array(String)}[1 + arrayCount(t -> p.begin >= t, {boundaries:Array(DateTime('UTC'))})],
       {metrics_digest:String},
       {currencies:Array(String)}[1 + arrayCount(t -> p.begin >= t, {boundaries:Array(DateTime('UTC'))})],
       p.usage_rows, p.usage_fingerprint, p.read_at, l.lines, l.line_digest, l.total, l.unpriced, l.rejected, l.skipped,
       a.carry_in, a.used, {reason:String}, {author:String}
FROM (SELECT * FROM pass_periods WHERE run_id = {run_id:UUID} AND NOT lost) AS p
LEFT JOIN (SELECT * FROM pass_lines WHERE run_id = {run_id:UUID}) AS l ON p.scope = l.scope AND p.begin = l.begin
LEFT JOIN (
    SELECT scope, begin, CAST((groupArray(account), groupArray(c.carry_in)), 'Map(LowCardinality(String), Decimal(38, 18))') AS carry_in,
           CAST((groupArray(account), groupArray(c.used)), 'Map(LowCardinality(String), Decimal(38, 18))') AS used
    FROM (SELECT * FROM pass_carries WHERE run_id = {run_id:UUID} ORDER BY scope, begin, account) AS c
    GROUP BY scope, begin) AS a ON p.scope = a.scope AND p.begin = a.begin
WHERE p.usage_rows = l.usage_rows AND p.usage_qty = l.qty AND l.lines = l.keys
  AND p.usage_fingerprint = l.usage_fingerprint
  AND {run_id:UUID} NOT IN (SELECT run_id FROM void_attempts)
  AND p.scope NOT IN (SELECT f.scope FROM scope_failures AS f WHERE f.run_id = {run_id:UUID})
  AND ({asked:Bool} OR NOT arrayExists(m -> p.begin >= m.1 AND p.begin < m.2, (SELECT groupArray((c.first, c.until)) FROM closed_months AS c)))
  AND (p.scope, p.begin, p.revision) NOT IN (
      SELECT scope, begin, revision FROM period_commits
      WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')} AND run_id NOT IN (SELECT run_id FROM void_attempts))
