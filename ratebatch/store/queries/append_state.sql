-- name:    append_state
-- purpose: The commits of a window now beside those of the append delivery before, per day: new (1), the same (2) or others (3).
-- params:  from, to DateTime('UTC'), as_of, then_as_of DateTime64(6, 'UTC'), month Date, closed, then_closed UInt32
-- reads:   period_commits of the window, twice
-- why:     the hash is that of export_commit_set. The digest of then must be the one that the manifest has, or what was
--          delivered cannot be told any more (a commit became visible late, or retention removed a revision).
SELECT toStartOfDay(begin) AS day, multiIf(then_commits = 0, 1, now_key = then_key, 2, 3) AS class,
       sum(now_commits) AS commits, sum(then_commits) AS commits_before, sum(now_hash) AS digest, sum(then_hash) AS digest_before,
       sum(now_lines) AS rated_lines, max(at) AS committed_at, arrayFilter(p -> p != '', groupUniqArray(plan)) AS plans, arrayFilter(p -> p != '', groupUniqArray(metrics)) AS metric_sets
FROM (
    SELECT scope, begin, countIf(side = 1) AS now_commits, countIf(side = 0) AS then_commits, maxIf(of_key, side = 1) AS now_key, maxIf(of_key, side = 0) AS then_key,
           sumIf(hash, side = 1) AS now_hash, sumIf(hash, side = 0) AS then_hash, sumIf(of_lines, side = 1) AS now_lines, maxIf(of_at, side = 1) AS at,
           maxIf(of_plan, side = 1) AS plan, maxIf(of_metrics, side = 1) AS metrics
    FROM (
        SELECT 1 AS side, scope, begin, of_key, reinterpretAsUInt128(sipHash128(scope, begin, end, revision, kind, plan_digest, metrics_digest, currency, lines, line_digest, total)) AS hash,
               if(kind = 1, lines, 0) AS of_lines, newest_at AS of_at, if(kind = 1, plan_digest, '') AS of_plan, if(kind = 1, metrics_digest, '') AS of_metrics
        FROM (SELECT scope, begin, argMax(end, rank) AS end, argMax(revision, rank) AS revision, toUInt8(argMax(kind, rank)) AS kind,
               argMax(toString(plan_digest), rank) AS plan_digest, argMax(toString(metrics_digest), rank) AS metrics_digest,
               argMax(toString(currency), rank) AS currency,
               argMax(lines, rank) AS lines, argMax(line_digest, rank) AS line_digest, argMax(total, rank) AS total,
               argMax(committed_at, rank) AS newest_at, argMax(key, rank) AS of_key
        FROM period_commits
        WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')}
          AND committed_at <= {as_of:DateTime64(6, 'UTC')}
          AND run_id NOT IN (SELECT run_id FROM void_attempts WHERE voided_at <= {as_of:DateTime64(6, 'UTC')})
          AND ({closed:UInt32} = 0 OR key IN (SELECT key FROM month_commits WHERE month = {month:Date} AND closed = {closed:UInt32} AND kind = 'commit'))
        GROUP BY scope, begin)
        UNION ALL
        SELECT 0 AS side, scope, begin, of_key, reinterpretAsUInt128(sipHash128(scope, begin, end, revision, kind, plan_digest, metrics_digest, currency, lines, line_digest, total)) AS hash,
               0 AS of_lines, newest_at AS of_at, '' AS of_plan, '' AS of_metrics
        FROM (SELECT scope, begin, argMax(end, rank) AS end, argMax(revision, rank) AS revision, toUInt8(argMax(kind, rank)) AS kind,
               argMax(toString(plan_digest), rank) AS plan_digest, argMax(toString(metrics_digest), rank) AS metrics_digest,
               argMax(toString(currency), rank) AS currency,
               argMax(lines, rank) AS lines, argMax(line_digest, rank) AS line_digest, argMax(total, rank) AS total,
               argMax(committed_at, rank) AS newest_at, argMax(key, rank) AS of_key
        FROM period_commits
        WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')}
          AND committed_at <= {then_as_of:DateTime64(6, 'UTC')}
          AND run_id NOT IN (SELECT run_id FROM void_attempts WHERE voided_at <= {then_as_of:DateTime64(6, 'UTC')})
          AND ({then_closed:UInt32} = 0 OR key IN (SELECT key FROM month_commits WHERE month = {month:Date} AND closed = {then_closed:UInt32} AND kind = 'commit'))
        GROUP BY scope, begin))
    GROUP BY scope, begin)
GROUP BY day, class ORDER BY day, class
