-- name:    late_port
-- purpose: The late samples of ports that a rollup may add, in the form of port_samples.
-- params:  from, to DateTime('UTC')           hours that begin in [from, to)
-- reads:   JUDGED: late_judged
SELECT region, host, epoch, sequence, begin, ts, instance_uuid, project_id, toUUIDOrZero(JSONExtractString(record, 'port_uuid')) AS port_uuid, toUUIDOrZero(JSONExtractString(record, 'network_uuid')) AS network_uuid, JSONExtractUInt(record, 'rx_bytes') AS rx_bytes, JSONExtractUInt(record, 'tx_bytes') AS tx_bytes,
       JSONExtractString(record, 'user_id') AS user_id, JSONExtractString(record, 'flavor_name') AS flavor_name, toUInt16(JSONExtractUInt(record, 'vcpus')) AS vcpus,
       JSONExtractString(record, 'image_id') AS image_id, JSONExtractString(record, 'instance_name') AS instance_name
FROM (/* JUDGED */) WHERE kind = 'port' AND verdict = 'new'
