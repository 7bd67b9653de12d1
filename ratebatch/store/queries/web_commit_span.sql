-- name:    web_commit_span
-- purpose: From when to when there are commits; 1970 if there are none.
-- reads:   one column of period_commits
SELECT min(begin) AS first, max(end) AS last FROM period_commits
