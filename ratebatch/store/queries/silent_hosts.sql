-- name:    silent_hosts
-- purpose: Hosts that sent samples once and none that ended after a moment; those that are gone for a month are left out.
-- params:  since DateTime('UTC'), gone DateTime('UTC')
-- reads:   hosts, small
SELECT region, host, max(h.last_sample) AS last_sample, max(h.last_arrival) AS last_arrival
FROM hosts AS h GROUP BY region, host
HAVING last_sample < {since:DateTime('UTC')} AND last_sample >= {gone:DateTime('UTC')}
ORDER BY region, host
