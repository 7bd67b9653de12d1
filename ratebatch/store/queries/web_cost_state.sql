-- name:    web_cost_state
-- purpose: What the commits of a window are, quarter by quarter of an hour (a month of a time zone may begin at one), so that it is known when figures have to be read again.
-- params:  from, to DateTime('UTC')
-- reads:   two columns of the window's commits; void_attempts
SELECT toStartOfFifteenMinutes(begin) AS hour, count() AS commits, max(committed_at) AS latest, (SELECT uniqExactIf(run_id, NOT priced) FROM void_attempts) AS voids
FROM period_commits
WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')}
GROUP BY hour ORDER BY hour
