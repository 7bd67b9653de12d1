-- name:    append_differences
-- purpose: What an append delivery adjusts, line by line: (current - billed) now, minus the same at the delivery before.
-- params:  from, to DateTime('UTC'), first_scope, last_scope String, month Date, as_of, billed_as_of, then_as_of, then_billed_as_of DateTime64(6, 'UTC'),
--          closed, billed_closed, then_closed, then_billed_closed UInt32, known Bool (only periods that there were before)
-- reads:   rated_lines and period_commits by (scope, begin)
-- why:     of the month itself nothing is billed before (billed_as_of 1970); of a closed month that it corrects, current minus
--          billed is the correction. A line whose rule, unit or bucket changed gives two rows, so that sums by any column are
--          those of a complete delivery (but its corrections, which name the rule that holds now for the whole difference).
--          closed and then_closed restrict the current sides, the other two the billed ones.
WITH now_current AS (
    SELECT argMax(if(kind = 'rated', key, toUInt128(0)), rank) AS of_key
    FROM period_commits
    WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')} AND scope >= {first_scope:String} AND scope <= {last_scope:String}
      AND committed_at <= {as_of:DateTime64(6, 'UTC')}
      AND run_id NOT IN (SELECT run_id FROM void_attempts WHERE voided_at <= {as_of:DateTime64(6, 'UTC')})
      AND ({closed:UInt32} = 0 OR key IN (SELECT key FROM month_commits WHERE month = {month:Date} AND closed = {closed:UInt32} AND kind = 'commit'))
    GROUP BY scope, begin),
now_billed AS (
    SELECT argMax(if(kind = 'rated', key, toUInt128(0)), rank) AS of_key
    FROM period_commits
    WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')} AND scope >= {first_scope:String} AND scope <= {last_scope:String}
      AND committed_at <= {billed_as_of:DateTime64(6, 'UTC')}
      AND run_id NOT IN (SELECT run_id FROM void_attempts WHERE voided_at <= {billed_as_of:DateTime64(6, 'UTC')})
      AND ({billed_closed:UInt32} = 0 OR key IN (SELECT key FROM month_commits WHERE month = {month:Date} AND closed = {billed_closed:UInt32} AND kind = 'commit'))
    GROUP BY scope, begin),
then_current AS (
    SELECT argMax(if(kind = 'rated', key, toUInt128(0)), rank) AS of_key
    FROM period_commits
    WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')} AND scope >= {first_scope:String} AND scope <= {last_scope:String}
      AND committed_at <= {then_as_of:DateTime64(6, 'UTC')}
      AND run_id NOT IN (SELECT run_id FROM void_attempts WHERE voided_at <= {then_as_of:DateTime64(6, 'UTC')})
      AND ({then_closed:UInt32} = 0 OR key IN (SELECT key FROM month_commits WHERE month = {month:Date} AND closed = {then_closed:UInt32} AND kind = 'commit'))
    GROUP BY scope, begin),
then_billed AS (
    SELECT argMax(if(kind = 'rated', key, toUInt128(0)), rank) AS of_key
    FROM period_commits
    WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')} AND scope >= {first_scope:String} AND scope <= {last_scope:String}
      AND committed_at <= {then_billed_as_of:DateTime64(6, 'UTC')}
      AND run_id NOT IN (SELECT run_id FROM void_attempts WHERE voided_at <= {then_billed_as_of:DateTime64(6, 'UTC')})
      AND ({then_billed_closed:UInt32} = 0 OR key IN (SELECT key FROM month_commits WHERE month = {month:Date} AND closed = {then_billed_closed:UInt32} AND kind = 'commit'))
    GROUP BY scope, begin)
SELECT region, scope, begin, max(end) AS until, metric, resource, attributes, unit,
       sum(side * qty) AS difference, sum(side * price) AS price_difference, rule, bucket, part, max(revision) AS of_revision, of_currency
FROM (
    SELECT region, scope, begin, end, metric, resource, attributes, unit, qty, price, rule, bucket, part, revision, c.currency AS of_currency, c.side AS side
    FROM rated_lines AS l
    INNER JOIN (
        SELECT key, any(toString(currency)) AS currency, any(toInt8(key IN (SELECT of_key FROM now_current)) - toInt8(key IN (SELECT of_key FROM now_billed))
           - toInt8(key IN (SELECT of_key FROM then_current)) + toInt8(key IN (SELECT of_key FROM then_billed))) AS side
        FROM period_commits
        WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')} AND scope >= {first_scope:String} AND scope <= {last_scope:String}
          AND ({known:Bool} = 0 OR (scope, begin) IN (
        SELECT scope, begin FROM period_commits
        WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')} AND scope >= {first_scope:String} AND scope <= {last_scope:String}
          AND committed_at <= {then_as_of:DateTime64(6, 'UTC')}
          AND run_id NOT IN (SELECT run_id FROM void_attempts WHERE voided_at <= {then_as_of:DateTime64(6, 'UTC')})
          AND ({then_closed:UInt32} = 0 OR key IN (SELECT key FROM month_commits WHERE month = {month:Date} AND closed = {then_closed:UInt32} AND kind = 'commit'))))
        GROUP BY key HAVING side != 0) AS c ON l.key = c.key
    WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')} AND scope >= {first_scope:String} AND scope <= {last_scope:String})
GROUP BY region, scope, begin, metric, resource, attributes, part, unit, rule, bucket, of_currency
HAVING difference != 0 OR price_difference != 0 OR sum(side) != 0
ORDER BY scope, begin, metric, resource, region, attributes, part, unit, rule, bucket, of_currency
