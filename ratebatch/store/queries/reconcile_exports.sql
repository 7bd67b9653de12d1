-- name:    reconcile_exports
-- purpose: The newest delivery of the lines of a month at each place.
-- params:  month Date
-- reads:   exports, small
SELECT location, argMax(delivery, exported_at) AS newest, argMax(commits, exported_at) AS of_commits, argMax(commits_digest, exported_at) AS digest,
       argMax(rows, exported_at) AS of_rows, max(exported_at) AS at
FROM exports WHERE dataset = 'lines' AND month = {month:Date}
GROUP BY location ORDER BY location
