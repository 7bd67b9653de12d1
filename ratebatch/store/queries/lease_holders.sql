-- name:    lease_holders
-- purpose: Who claims a lease now, the earliest claim first, with the age of its last heartbeat in seconds.
-- params:  name String
-- reads:   leases, small
SELECT holder, min(claimed_at) AS claimed, toFloat64(dateDiff('millisecond', max(beat_at), now64(6))) / 1000 AS silent_seconds
FROM leases WHERE name = {name:String}
GROUP BY holder HAVING argMax(state, beat_at) = 'claimed'
ORDER BY claimed, holder
