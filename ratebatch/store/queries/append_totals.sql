-- name:    append_totals
-- purpose: By how much the commits behind append_differences differ, per day, scope and currency: what its lines must add up to.
-- params:  from, to DateTime('UTC'), first_scope, last_scope String, month Date, as_of, billed_as_of, then_as_of, then_billed_as_of DateTime64(6, 'UTC'),
--          closed, billed_closed, then_closed, then_billed_closed UInt32, known Bool (only periods that there were before)
-- reads:   append_sides
SELECT toStartOfDay(begin) AS day, scope, of_currency, sum(side * of_total) AS total, toUInt64(count()) AS commits
FROM (
/* query append_sides */)
GROUP BY day, scope, of_currency ORDER BY day, scope, of_currency
