-- name:    export_commits
-- purpose: The current commits of a window and a range of scopes, in the order of export_lines.
-- params:  from, to DateTime('UTC'), first_scope, last_scope String, as_of DateTime64(6, 'UTC'), month Date, closed UInt32
-- reads:   period_commits by (scope, begin)
-- why:     hash is the one that export_commit_set sums. Kinds are read as numbers: rated 1, reset 2, disabled 3.
--          NEW ONLY stands for what an append delivery leaves out (append_known).
SELECT scope, begin, end, revision, kind, plan_digest, metrics_digest, currency, lines, line_digest, total, newest_at AS committed_at,
       reinterpretAsUInt128(sipHash128(scope, begin, end, revision, kind, plan_digest, metrics_digest, currency, lines, line_digest, total)) AS hash
FROM (
    SELECT scope, begin, argMax(end, rank) AS end, argMax(revision, rank) AS revision, toUInt8(argMax(kind, rank)) AS kind,
           argMax(toString(plan_digest), rank) AS plan_digest, argMax(toString(metrics_digest), rank) AS metrics_digest,
           argMax(toString(currency), rank) AS currency,
           argMax(lines, rank) AS lines, argMax(line_digest, rank) AS line_digest, argMax(total, rank) AS total,
           argMax(committed_at, rank) AS newest_at
    FROM period_commits
    WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')}
      AND scope >= {first_scope:String} AND scope <= {last_scope:String} AND committed_at <= {as_of:DateTime64(6, 'UTC')}
      AND run_id NOT IN (SELECT run_id FROM void_attempts WHERE voided_at <= {as_of:DateTime64(6, 'UTC')})
      AND ({closed:UInt32} = 0 OR key IN (SELECT key FROM month_commits WHERE month = {month:Date} AND closed = {closed:UInt32} AND kind = 'commit'))
      /* NEW ONLY */
    GROUP BY scope, begin)
ORDER BY scope, begin
