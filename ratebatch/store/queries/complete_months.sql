-- name:    complete_months
-- purpose: The months in which nothing was due at the last look, and what that was concluded from.
-- reads:   complete_months, one row a month
SELECT month, windows, commits, latest, voids FROM complete_months FINAL ORDER BY month
