-- name:    export_scope_totals
-- purpose: What each scope's commits of a window amount to, per currency.
-- params:  from, to DateTime('UTC'), as_of DateTime64(6, 'UTC'), month Date, closed UInt32
-- reads:   period_commits of the window
SELECT scope, of_currency, sum(of_total) AS total
FROM (
    SELECT scope, begin, argMax(toString(currency), rank) AS of_currency, argMax(if(kind = 'rated', total, 0), rank) AS of_total
    FROM period_commits
    WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')} AND committed_at <= {as_of:DateTime64(6, 'UTC')}
      AND run_id NOT IN (SELECT run_id FROM void_attempts WHERE voided_at <= {as_of:DateTime64(6, 'UTC')})
      AND ({closed:UInt32} = 0 OR key IN (SELECT key FROM month_commits WHERE month = {month:Date} AND closed = {closed:UInt32} AND kind = 'commit'))
    GROUP BY scope, begin)
GROUP BY scope, of_currency ORDER BY scope, of_currency
