-- name:    unexported_months
-- purpose: The closed months that were not exported since they were closed, by which close and since when.
-- why:     where nothing is exported, nothing is missing: a month counts if something had been exported before it was closed.
--          A month is exported when any dataset of it is; a dataset or place that fails is the run's to say.
-- reads:   month_commits, only its close and reopen rows; exports, small
WITH (SELECT if(count() = 0, toDateTime64('2200-01-01 00:00:00', 6, 'UTC'), min(x.exported_at)) FROM exports AS x) AS first_export
SELECT c.month AS month, c.closed AS closed, c.closed_at AS closed_at
FROM closed_months AS c
LEFT JOIN (SELECT x.month AS month, max(x.exported_at) AS latest FROM exports AS x GROUP BY x.month) AS e ON c.month = e.month
WHERE c.closed_at > first_export AND e.latest < c.closed_at
ORDER BY month
