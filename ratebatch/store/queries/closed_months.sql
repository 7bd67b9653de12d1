-- name:    closed_months
-- purpose: The months that are closed now: of close and reopen the last one counts.
-- reads:   month_commits, only its close and reopen rows
SELECT month FROM month_commits WHERE kind IN ('close', 'reopen')
GROUP BY month HAVING argMax(kind, closed_at) = 'close' ORDER BY month
