-- name:    first_commit
-- purpose: Where the first period begins that was ever committed; 1970 if none was.
-- reads:   the bounds of the partitions of period_commits
SELECT min(begin) FROM period_commits
