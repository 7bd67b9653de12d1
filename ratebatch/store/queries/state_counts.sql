-- name:    state_counts
-- purpose: How many commits each month (UTC) holds, and how many attempts are void: what the hints of complete_months rest on.
-- reads:   two narrow columns of period_commits; void_attempts
SELECT toDate(toStartOfMonth(begin)) AS month, count() AS commits, max(committed_at) AS latest, (SELECT count() FROM void_attempts FINAL) AS voids
FROM period_commits GROUP BY month ORDER BY month
