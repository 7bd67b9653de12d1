-- name:    append_differences
-- purpose: What an append delivery adjusts, line by line: (current - billed) now, minus the same at the delivery before.
-- params:  from, to DateTime('UTC'), first_scope, last_scope String, month Date, as_of, billed_as_of, then_as_of, then_billed_as_of DateTime64(6, 'UTC'),
--          closed, billed_closed, then_closed, then_billed_closed UInt32, known Bool (only periods that there were before)
-- reads:   rated_lines by (scope, begin); append_sides
-- why:     of the month itself nothing is billed before (billed_as_of 1970); of a closed month that it corrects, current minus
--          billed is the correction. A line whose rule, unit or bucket changed gives two rows, so that sums by any column are
--          those of a complete delivery (but its corrections, which name the rule that holds now for the whole difference).
--          closed and then_closed restrict the current sides, the other two the billed ones.
SELECT region, scope, begin, max(end) AS until, metric, resource, attributes, unit,
       sum(side * qty) AS difference, sum(side * price) AS price_difference, rule, bucket, part, max(revision) AS of_revision, of_currency
FROM (
    SELECT l.region AS region, l.scope AS scope, l.begin AS begin, end, metric, resource, attributes, unit, qty, price, rule, bucket, part, revision, c.of_currency AS of_currency, c.side AS side
    FROM rated_lines AS l
    INNER JOIN (
/* query append_sides */) AS c ON l.key = c.key
    WHERE l.begin >= {from:DateTime('UTC')} AND l.begin < {to:DateTime('UTC')} AND l.scope >= {first_scope:String} AND l.scope <= {last_scope:String})
GROUP BY region, scope, begin, metric, resource, attributes, part, unit, rule, bucket, of_currency
HAVING difference != 0 OR price_difference != 0 OR sum(side) != 0
ORDER BY scope, begin, metric, resource, region, attributes, part, unit, rule, bucket, of_currency
