-- name:    reprice_lines
-- purpose: Some lines of a window that count, drawn by chance, with the digests of the plan and the metrics they were rated by.
-- params:  from, to DateTime('UTC'), as_of DateTime64(6, 'UTC'), month Date, closed UInt32, seed UInt64, n UInt64 (how many)
-- reads:   rated_lines of the window, through its commits
-- why:     the draw is the order of a hash with a seed, so one that found something can be drawn again. part 0 is the first line
--          of a usage row; of tiers the job prices the whole period again.
SELECT l.region, l.scope, l.begin, l.end, l.metric, l.resource, l.attributes, l.unit, l.qty, l.price, l.rule, l.bucket, l.part, l.revision, l.run_id, c.plan, c.metrics
FROM rated_lines AS l
INNER JOIN (
    SELECT argMax(if(kind = 'rated', key, toUInt128(0)), rank) AS of_key, argMax(toString(plan_digest), rank) AS plan, argMax(toString(metrics_digest), rank) AS metrics
    FROM period_commits
    WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')} AND committed_at <= {as_of:DateTime64(6, 'UTC')}
      AND run_id NOT IN (SELECT run_id FROM void_attempts WHERE voided_at <= {as_of:DateTime64(6, 'UTC')})
      AND ({closed:UInt32} = 0 OR key IN (SELECT key FROM month_commits WHERE month = {month:Date} AND closed = {closed:UInt32} AND kind = 'commit'))
    GROUP BY scope, begin) AS c ON l.key = c.of_key
WHERE l.begin >= {from:DateTime('UTC')} AND l.begin < {to:DateTime('UTC')} AND l.part = 0
ORDER BY sipHash64({seed:UInt64}, l.key, l.metric, l.resource, l.region, l.attributes) LIMIT {n:UInt64}
