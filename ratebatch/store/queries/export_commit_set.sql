-- name:    export_commit_set
-- purpose: The commits of a window as a figure per day, so that an export can tell whether they changed while it read.
-- params:  from, to DateTime('UTC'), as_of DateTime64(6, 'UTC'), month Date, closed UInt32
-- reads:   period_commits of the window
-- why:     the digest is the wrapping sum of a hash per commit: a sum does not depend on the order, so an export that
--          reads its commits in several parts adds up the parts. The hash leaves out run_id: a run that crashed and was
--          repeated gives the same digest as one that did not.
SELECT toStartOfDay(begin) AS day, count() AS commits,
       sum(reinterpretAsUInt128(sipHash128(scope, begin, end, revision, kind, plan_digest, metrics_digest, currency, lines, line_digest, total))) AS digest,
       sumIf(lines, kind = 1) AS rated_lines, max(newest_at) AS committed_at
FROM (
    SELECT scope, begin, argMax(end, rank) AS end, argMax(revision, rank) AS revision, toUInt8(argMax(kind, rank)) AS kind,
           argMax(toString(plan_digest), rank) AS plan_digest, argMax(toString(metrics_digest), rank) AS metrics_digest,
           argMax(toString(currency), rank) AS currency,
           argMax(lines, rank) AS lines, argMax(line_digest, rank) AS line_digest, argMax(total, rank) AS total,
           argMax(committed_at, rank) AS newest_at
    FROM period_commits
    WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')} AND committed_at <= {as_of:DateTime64(6, 'UTC')}
      AND run_id NOT IN (SELECT run_id FROM void_attempts WHERE voided_at <= {as_of:DateTime64(6, 'UTC')})
      AND ({closed:UInt32} = 0 OR key IN (SELECT key FROM month_commits WHERE month = {month:Date} AND closed = {closed:UInt32} AND kind = 'commit'))
    GROUP BY scope, begin)
GROUP BY day ORDER BY day
