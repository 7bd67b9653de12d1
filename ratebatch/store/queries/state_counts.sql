-- name:    state_counts
-- purpose: How many commits each month (UTC) holds, and how many attempts are void that may have had commits: what the hints of complete_months rest on.
-- reads:   two narrow columns of period_commits; void_attempts
SELECT toDate(toStartOfMonth(begin)) AS month, count() AS commits, max(committed_at) AS latest, (SELECT uniqExactIf(run_id, NOT priced) FROM void_attempts) AS voids
FROM period_commits GROUP BY month ORDER BY month
