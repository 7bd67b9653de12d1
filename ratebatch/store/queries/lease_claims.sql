-- name:    lease_claims
-- purpose: Who claims which lease now, with the age of the last heartbeat in seconds.
-- reads:   leases, small
SELECT name, holder, toFloat64(dateDiff('millisecond', max(beat_at), now64(6))) / 1000 AS silent_seconds
FROM leases
GROUP BY name, holder HAVING argMax(state, beat_at) = 'claimed'
ORDER BY name, holder
