-- name:    commits_under_way
-- purpose: How many statements on this server are writing commits.
-- reads:   system.processes
-- why:     a commit is dated when its statement begins and seen when it ends.
SELECT count() FROM system.processes WHERE query_id != queryID() AND query_kind = 'Insert' AND position(query, 'INSERT INTO period_commits') > 0
