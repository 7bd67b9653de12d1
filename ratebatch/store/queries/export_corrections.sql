-- name:    export_corrections
-- purpose: The differences between the lines of a closed month that count now and those that were billed, line by line.
-- params:  from, to DateTime('UTC'), first_scope, last_scope String, month Date, closed UInt32, base_as_of, as_of DateTime64(6, 'UTC')
-- reads:   rated_lines and period_commits by (scope, begin)
-- why:     one row per line key, unit and bucket, with the new quantity and price minus the billed ones: quantities of two
--          units, or with and without a price, are never added to each other. Lines that did not change give no row, one that
--          comes or goes gives one even if it is of nothing. rule is the one that holds now for the whole difference. base is what was billed, see export_correction_totals. Currencies never cancel each other.
WITH current AS (
    SELECT argMax(if(kind = 'rated', key, toUInt128(0)), rank) AS of_key
    FROM period_commits
    WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')}
      AND scope >= {first_scope:String} AND scope <= {last_scope:String} AND committed_at <= {as_of:DateTime64(6, 'UTC')}
      AND run_id NOT IN (SELECT run_id FROM void_attempts WHERE voided_at <= {as_of:DateTime64(6, 'UTC')})
    GROUP BY scope, begin),
base AS (
    SELECT argMax(if(kind = 'rated', key, toUInt128(0)), rank) AS of_key
    FROM period_commits
    WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')}
      AND scope >= {first_scope:String} AND scope <= {last_scope:String} AND committed_at <= {base_as_of:DateTime64(6, 'UTC')}
      AND run_id NOT IN (SELECT run_id FROM void_attempts WHERE voided_at <= {base_as_of:DateTime64(6, 'UTC')})
      AND ({closed:UInt32} = 0 OR key IN (SELECT key FROM month_commits WHERE month = {month:Date} AND closed = {closed:UInt32} AND kind = 'commit'))
    GROUP BY scope, begin)
SELECT region, scope, begin, max(end) AS until, metric, resource, attributes, unit,
       sum(side * qty) AS difference, sum(side * price) AS price_difference,
       argMax(rule, side) AS of_rule, bucket, part, max(revision) AS of_revision, of_currency
FROM (
    SELECT region, scope, begin, end, metric, resource, attributes, unit, qty, price, rule, bucket, part, revision, c.currency AS of_currency,
           toInt8(l.key IN (SELECT of_key FROM current)) - toInt8(l.key IN (SELECT of_key FROM base)) AS side
    FROM rated_lines AS l
    INNER JOIN (
        SELECT key, any(toString(currency)) AS currency FROM period_commits
        WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')} AND scope >= {first_scope:String} AND scope <= {last_scope:String}
          AND (key IN (SELECT of_key FROM current)) != (key IN (SELECT of_key FROM base))
        GROUP BY key) AS c ON l.key = c.key
    WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')} AND scope >= {first_scope:String} AND scope <= {last_scope:String})
WHERE side != 0
GROUP BY region, scope, begin, metric, resource, attributes, part, unit, bucket, of_currency
HAVING difference != 0 OR price_difference != 0 OR sum(side) != 0
ORDER BY scope, begin, metric, resource, region, attributes, part, unit, bucket, of_currency
