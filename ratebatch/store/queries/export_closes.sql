-- name:    export_closes
-- purpose: The months that are closed at a moment, when, and by which close.
-- params:  as_of DateTime64(6, 'UTC')
-- reads:   month_commits, only its close and reopen rows
SELECT month, argMax(closed, closed_at) AS number, max(closed_at) AS at
FROM month_commits
WHERE kind IN ('close', 'reopen') AND closed_at <= {as_of:DateTime64(6, 'UTC')}
GROUP BY month HAVING argMax(kind, closed_at) = 'close'
ORDER BY month
