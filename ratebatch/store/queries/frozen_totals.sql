-- name:    frozen_totals
-- purpose: What the commits of one close amount to, per currency.
-- params:  month Date, closed UInt32
-- reads:   month_commits of the close
SELECT m.currency AS currency, count() AS periods, sum(m.lines) AS lines, sum(m.line_digest) AS line_digest, sum(m.total) AS total,
       sum(cityHash64(m.scope, m.begin, m.key)) AS keys, uniqExact(m.scope, m.begin) AS distinct_periods
FROM month_commits AS m WHERE m.month = {month:Date} AND m.closed = {closed:UInt32} AND m.kind = 'commit'
GROUP BY m.currency ORDER BY m.currency
