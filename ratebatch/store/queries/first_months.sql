-- name:    first_months
-- purpose: The earliest period with a commit and the earliest month that was ever closed; 1970 where there is none.
-- reads:   how far period_commits reaches back, no data; month_commits, only its close and reopen rows
SELECT (SELECT min(begin) FROM period_commits) AS first_commit, (SELECT min(month) FROM month_commits WHERE kind IN ('close', 'reopen')) AS first_close
