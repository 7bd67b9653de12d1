-- name:    account_lines
-- purpose: What the lines of a metric add up to in the periods of a month before one, for one account of tiered prices.
-- params:  scope, metric String, from, begin DateTime('UTC') (of the month; of the period), per String (scope, resource or the name of an attribute), value String (of
--          the account), out_of_range String (the reason of lines that were counted and cannot be priced), as_of DateTime64(6, 'UTC'), month Date,
--          closed UInt32
-- reads:   rated_lines of a month of the scope by (scope, begin), through the commits of the same
-- why:     the plan says by its digest whether the period's lines drew on such an account at all. An attribute that is no part of
--          lines (implied) follows from scope and begin: those lines come with named = false, and whoever asked works it out.
SELECT l.begin, c.plan, c.metrics, {per:String} IN ('scope', 'resource') OR mapContains(l.attributes, {per:String}) AS named, sum(toDecimal256(greatest(l.qty, toDecimal128(0, 18)), 18)) AS used
FROM rated_lines AS l
INNER JOIN (
    SELECT argMax(if(kind = 'rated', key, toUInt128(0)), rank) AS of_key, argMax(toString(plan_digest), rank) AS plan, argMax(toString(metrics_digest), rank) AS metrics
    FROM period_commits
    WHERE scope = {scope:String} AND begin >= {from:DateTime('UTC')} AND begin < {begin:DateTime('UTC')} AND committed_at <= {as_of:DateTime64(6, 'UTC')}
      AND run_id NOT IN (SELECT run_id FROM void_attempts WHERE voided_at <= {as_of:DateTime64(6, 'UTC')})
      AND ({closed:UInt32} = 0 OR key IN (SELECT key FROM month_commits WHERE month = {month:Date} AND closed = {closed:UInt32} AND kind = 'commit'))
    GROUP BY begin) AS c ON l.key = c.of_key
WHERE l.scope = {scope:String} AND l.begin >= {from:DateTime('UTC')} AND l.begin < {begin:DateTime('UTC')} AND l.metric = {metric:String} AND l.part < 60000
  AND (l.bucket = '' OR l.bucket = 'rejected' AND l.rule = {out_of_range:String})
  AND ({per:String} = 'scope' OR {per:String} = 'resource' AND l.resource = {value:String}
       OR {per:String} NOT IN ('scope', 'resource') AND (NOT mapContains(l.attributes, {per:String}) OR l.attributes[{per:String}] = {value:String}))
GROUP BY l.begin, c.plan, c.metrics, named
ORDER BY l.begin
