-- table:   closed_months
-- purpose: The months that are closed now, by which close, and the instants [first, until) they consist of.
-- why:     a close from before the instants were stored is of a month in UTC.
CREATE OR REPLACE VIEW {{view "closed_months"}} AS
SELECT m.month AS month, argMax(m.closed, m.closed_at) AS closed, max(m.closed_at) AS closed_at,
       argMax(if(m.until = toDateTime(0, 'UTC'), toDateTime(m.month, 'UTC'), m.begin), m.closed_at) AS first,
       argMax(if(m.until = toDateTime(0, 'UTC'), toDateTime(m.month + INTERVAL 1 MONTH, 'UTC'), m.until), m.closed_at) AS until
FROM {{name "month_commits"}} AS m
WHERE m.kind IN ('close', 'reopen')
GROUP BY m.month HAVING argMax(m.kind, m.closed_at) = 'close'
