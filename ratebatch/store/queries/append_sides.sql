-- name:    append_sides
-- purpose: The commits by which an append delivery differs from the one before, each with its side: how often its lines are added
--          (or, negative, taken back).
-- params:  from, to DateTime('UTC'), first_scope, last_scope String, month Date, as_of, billed_as_of, then_as_of, then_billed_as_of DateTime64(6, 'UTC'),
--          closed, billed_closed, then_closed, then_billed_closed UInt32, known Bool (only periods that there were before)
-- reads:   period_commits by (scope, begin), five times; append_known
-- why:     (current - billed) now, minus the same at the delivery before; one text for the lines (append_differences) and for what
--          they must add up to (append_totals).
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
SELECT scope, begin, key, any(toString(currency)) AS of_currency, any(c.total) AS of_total,
       any(toInt8(key IN (SELECT of_key FROM now_current)) - toInt8(key IN (SELECT of_key FROM now_billed))
           - toInt8(key IN (SELECT of_key FROM then_current)) + toInt8(key IN (SELECT of_key FROM then_billed))) AS side
FROM period_commits AS c
WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')} AND scope >= {first_scope:String} AND scope <= {last_scope:String}
  AND ({known:Bool} = 0 OR (scope, begin) IN (
/* query append_known */))
GROUP BY scope, begin, key HAVING side != 0
