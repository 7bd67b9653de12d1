-- name:    append_sides
-- purpose: The commits by which an append delivery differs from the one before, each with its side: how often its lines are added
--          (or, negative, taken back).
-- params:  from, to DateTime('UTC'), first_scope, last_scope String, month Date, as_of, billed_as_of, then_as_of, then_billed_as_of DateTime64(6, 'UTC'),
--          closed, billed_closed, then_closed, then_billed_closed UInt32, known Bool (only periods that there were before)
-- reads:   period_commits by (scope, begin), twice; append_known
-- why:     (current - billed) now, minus the same at the delivery before: four looks at the commits that differ in their moment, in
--          the close that restricts them and in their sign. One text for the lines (append_differences) and for what they must
--          add up to (append_totals).
WITH looks AS (
    SELECT look.1 AS n, look.2 AS sign, look.3 AS moment, look.4 AS close
    FROM (SELECT arrayJoin([
        (1, 1, {as_of:DateTime64(6, 'UTC')}, {closed:UInt32}),
        (2, -1, {billed_as_of:DateTime64(6, 'UTC')}, {billed_closed:UInt32}),
        (3, -1, {then_as_of:DateTime64(6, 'UTC')}, {then_closed:UInt32}),
        (4, 1, {then_billed_as_of:DateTime64(6, 'UTC')}, {then_billed_closed:UInt32})]) AS look)),
seen AS (
    SELECT l.sign AS sign, argMax(if(p.kind = 'rated', p.key, toUInt128(0)), p.rank) AS of_key
    FROM period_commits AS p CROSS JOIN looks AS l
    WHERE p.begin >= {from:DateTime('UTC')} AND p.begin < {to:DateTime('UTC')} AND p.scope >= {first_scope:String} AND p.scope <= {last_scope:String}
      AND p.committed_at <= l.moment
      AND (l.n, p.run_id) NOT IN (SELECT k.n, v.run_id FROM void_attempts AS v CROSS JOIN looks AS k WHERE v.voided_at <= k.moment)
      AND (l.close = 0 OR (l.close, p.key) IN (SELECT m.closed, m.key FROM month_commits AS m WHERE m.month = {month:Date} AND m.kind = 'commit'))
    GROUP BY l.n, l.sign, p.scope, p.begin)
SELECT c.scope AS scope, c.begin AS begin, c.key AS key, any(toString(c.currency)) AS of_currency, any(c.total) AS of_total, any(s.side) AS side
FROM period_commits AS c
INNER JOIN (SELECT of_key, sum(sign) AS side FROM seen GROUP BY of_key HAVING side != 0) AS s ON c.key = s.of_key
WHERE c.begin >= {from:DateTime('UTC')} AND c.begin < {to:DateTime('UTC')} AND c.scope >= {first_scope:String} AND c.scope <= {last_scope:String}
  AND ({known:Bool} = 0 OR (c.scope, c.begin) IN (
/* query append_known */))
GROUP BY c.scope, c.begin, c.key
