-- name:    commit_scopes
-- purpose: The scopes that have commits from a time on, with their first and last period.
-- params:  since DateTime('UTC')
-- reads:   two narrow columns of period_commits
SELECT p.scope AS scope, min(p.begin) AS first, max(p.begin) AS last FROM period_commits AS p
WHERE p.begin >= {since:DateTime('UTC')}
GROUP BY p.scope ORDER BY p.scope
