-- name:    merge_late_port
-- purpose: What the rows of a tier amount to with all late samples: their base and the late part, added up.
-- params:  tier String                        the tier's name
--          width UInt32                       seconds of a bucket
--          from, to DateTime('UTC')           buckets that begin in [from, to)
-- reads:   late samples by the text of tier_port (LATE); tier_bases of the window
-- why:     the sum has more samples than the row that stands in the tier, so it takes its place; computed again it is the
--          same. A base of nothing to which nothing is added gives no row. Averages are weighted by time; time beyond the bucket's length is capped:
--          when the row's samples began and ended is not known any more, so what a late one shares with them counts twice.
WITH sum(x.ms) AS all_ms
SELECT bucket, region, instance_uuid, port_uuid, network_uuid, project_id, user_id, flavor_name, vcpus, image_id, argMax(x.instance_name, x.samples > 0) AS name_, argMax(x.host, x.samples > 0) AS host_, toUInt32(sum(x.samples)) AS samples_, toUInt32(sum(x.samples_ended)) AS samples_ended_, reinterpret(toInt32(least(all_ms, 1000 * {width:UInt32})), 'Decimal(9, 3)') AS covered_, sum(x.rx_bytes) AS rx_bytes_, sum(x.tx_bytes) AS tx_bytes_
FROM (
    SELECT bucket, region, instance_uuid, port_uuid, network_uuid, project_id, user_id, flavor_name, vcpus, image_id, instance_name, host, samples, samples_ended, covered_seconds, rx_bytes, tx_bytes, toUInt64(reinterpretAsInt32(covered_seconds)) AS ms FROM (/* LATE */)
    UNION ALL
    SELECT bucket, region, instance_uuid, port_uuid, network_uuid, project_id, user_id, flavor_name, vcpus, image_id, instance_name, host, samples, samples_ended, covered_seconds, rx_bytes, tx_bytes, toUInt64(reinterpretAsInt32(covered_seconds)) AS ms FROM tier_bases FINAL
    WHERE tier = {tier:String} AND bucket >= {from:DateTime('UTC')} AND bucket < {to:DateTime('UTC')}) AS x
GROUP BY bucket, region, instance_uuid, port_uuid, network_uuid, project_id, user_id, flavor_name, vcpus, image_id
HAVING sum(x.samples) > 0
