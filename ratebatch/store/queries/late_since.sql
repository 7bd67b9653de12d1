-- name:    late_since
-- purpose: From when on tier rows have to be looked at for usage that arrived behind its commit, and the server's time now.
-- reads:   late_looks; the commits made since the last look, two columns
-- why:     a commit made since then may rest on usage that was read long before, when the look could not see it yet. Ten minutes
--          more, because a refresh writes its rows, and another shard its commits, later than the time they are given.
SELECT if(last = toDateTime64(0, 6, 'UTC'), oldest_read, least(last, if(commits > 0, oldest_read, last))) - INTERVAL 10 MINUTE AS since, now64(6) AS now, commits
FROM (
    SELECT (SELECT max(looked_at) FROM late_looks) AS last, min(c.usage_read_at) AS oldest_read, count() AS commits
    FROM period_commits AS c
    WHERE c.kind = 'rated' AND c.committed_at >= (SELECT max(looked_at) FROM late_looks) - INTERVAL 10 MINUTE)
