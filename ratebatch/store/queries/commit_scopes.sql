-- name:    commit_scopes
-- purpose: The scopes that have commits from a time on, with their first and last period.
-- params:  since DateTime('UTC')
-- reads:   three narrow columns of period_commits
-- why:     windows begin where the first period does. A commit off the grid of its length (see doctor_off_grid) stands for the
--          period that it begins in.
SELECT p.scope AS scope, min(toDateTime(toUnixTimestamp(p.begin) - toUnixTimestamp(p.begin) % greatest(toUnixTimestamp(p.end) - toUnixTimestamp(p.begin), 1), 'UTC')) AS first,
       max(toDateTime(toUnixTimestamp(p.begin) - toUnixTimestamp(p.begin) % greatest(toUnixTimestamp(p.end) - toUnixTimestamp(p.begin), 1), 'UTC')) AS last
FROM period_commits AS p
WHERE p.begin >= {since:DateTime('UTC')}
GROUP BY p.scope ORDER BY p.scope
