-- name:    lease_beat
-- purpose: Claims a lease, keeps it alive, or releases it.
-- params:  name String, holder String, state String, claimed_at DateTime64(6, 'UTC')
INSERT INTO leases (name, holder, state, claimed_at)
SELECT {name:String}, {holder:String}, {state:String}, {claimed_at:DateTime64(6, 'UTC')}
