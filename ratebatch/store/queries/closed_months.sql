-- name:    closed_months
-- purpose: The months that are closed now, by which close and since when.
-- reads:   month_commits, only its close and reopen rows
SELECT month, closed, closed_at FROM closed_months ORDER BY month
