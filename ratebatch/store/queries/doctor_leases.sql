-- name:    doctor_leases
-- purpose: Leases that are claimed and whose holder has been silent for a while, in seconds.
-- params:  silent UInt32 (seconds)
-- reads:   leases, small
SELECT name, holder, toUInt64(dateDiff('second', max(beat_at), now64(6))) AS silent_seconds
FROM leases GROUP BY name, holder
HAVING argMax(state, beat_at) = 'claimed' AND silent_seconds > {silent:UInt32}
ORDER BY name, holder
