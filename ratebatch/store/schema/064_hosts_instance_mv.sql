-- table:   hosts_instance_mv
-- purpose: Fills hosts from each insert of instance samples; a repeat changes nothing but the arrival.
CREATE MATERIALIZED VIEW IF NOT EXISTS {{view "hosts_instance_mv"}} TO {{local "hosts"}} AS
SELECT region, host, min(toDateTime(ts, 'UTC')) AS first_sample, max(toDateTime(ts, 'UTC')) AS last_sample, max(ingested_at) AS last_arrival
FROM {{local "instance_samples"}}
GROUP BY region, host
