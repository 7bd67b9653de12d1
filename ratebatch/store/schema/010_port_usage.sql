-- table:   port_usage
-- purpose: Traffic of each port from a moment on, e.g. since the start of a billing period.
-- params:  since DateTime('UTC')
-- reads:   port_volume_hourly; rows of one key are counted once, the fullest and then the newest
CREATE VIEW IF NOT EXISTS {{view "port_usage"}} AS
SELECT region, project_id, instance_uuid, port_uuid, network_uuid,
       sum(row_rx_bytes) AS rx_bytes, sum(row_tx_bytes) AS tx_bytes, max(bucket) AS last_bucket
FROM (SELECT region, project_id, instance_uuid, port_uuid, network_uuid, bucket,
             argMax(rx_bytes, (samples, refreshed_at)) AS row_rx_bytes,
             argMax(tx_bytes, (samples, refreshed_at)) AS row_tx_bytes
      FROM {{name "port_volume_hourly"}}
      WHERE bucket >= {since:DateTime('UTC')}
      GROUP BY region, project_id, instance_uuid, port_uuid, network_uuid, bucket, user_id, flavor_name, vcpus, image_id)
GROUP BY region, project_id, instance_uuid, port_uuid, network_uuid
