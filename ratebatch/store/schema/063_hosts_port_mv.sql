-- table:   hosts_port_mv
-- purpose: Fills hosts from each insert of port samples; a repeat changes nothing but the arrival.
CREATE MATERIALIZED VIEW IF NOT EXISTS {{view "hosts_port_mv"}} TO {{local "hosts"}} AS
SELECT region, host, min(toDateTime(ts, 'UTC')) AS first_sample, max(toDateTime(ts, 'UTC')) AS last_sample, max(ingested_at) AS last_arrival
FROM {{local "port_samples"}}
GROUP BY region, host
