-- table:   closed_months
-- purpose: The months that are closed now, and by which close: of close and reopen the row written last counts.
CREATE VIEW IF NOT EXISTS {{view "closed_months"}} AS
SELECT m.month AS month, argMax(m.closed, m.closed_at) AS closed, max(m.closed_at) AS closed_at
FROM {{name "month_commits"}} AS m
WHERE m.kind IN ('close', 'reopen')
GROUP BY m.month HAVING argMax(m.kind, m.closed_at) = 'close'
