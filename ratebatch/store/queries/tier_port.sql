-- name:    tier_port
-- purpose: Traffic of ports in buckets of any width: the one text behind both tiers, the refreshable views and a rollup by hand.
-- params:  width UInt32                   seconds of a bucket; divides a day
--          from, to DateTime('UTC')       buckets that begin in [from, to); to is at most now, so only closed buckets
--          reach UInt32                   no sample of a bucket before to ends later than this many seconds after to
--          since DateTime('UTC')          1970: every bucket; else those closed since, or reached by a sample since
--          target Identifier              the tier's table: a row that stands there already is not written again
-- reads:   port_samples FINAL: its sort key holds the sample's identity, so repeats merge while they are read, and memory
--          does not grow with the time span; days are partitions and a repeat lies in the same one.
-- why:     a sample covers [begin, ts). Where it crosses a bucket's edge its part is floor(v * (hi - begin) / length)
--          - floor(v * (lo - begin) / length): whole numbers that add up to v, the remainder in the later bucket. A
--          sample that ends on an edge, or has no length there, belongs to the bucket before the edge.
--          Covered time beyond the bucket's length (two hosts in a migration) is scaled down over the resource's rows.
WITH
    (v, lo, hi, begin_ms, length) -> if(length = 0, toUInt128(v),
        intDiv(toUInt128(v) * toUInt64(hi - begin_ms), length) - intDiv(toUInt128(v) * toUInt64(lo - begin_ms), length)) AS part,
    touched AS (
        SELECT DISTINCT region, instance_uuid, toUInt32(arrayJoin(range(
            least(intDiv(toUnixTimestamp64Milli(begin), 1000 * {width:UInt32}), intDiv(toUnixTimestamp64Milli(ts) - 1, 1000 * {width:UInt32})),
            intDiv(toUnixTimestamp64Milli(ts) - 1, 1000 * {width:UInt32}) + 1))) AS slot
        FROM port_samples
        WHERE {since:DateTime('UTC')} > toDateTime(0, 'UTC')
          AND (ingested_at >= {since:DateTime('UTC')} OR ts > {since:DateTime('UTC')} - {width:UInt32}))
SELECT bucket, region, instance_uuid, port_uuid, network_uuid, project_id, user_id, flavor_name, vcpus, image_id, instance_name, host,
       samples, samples_ended, covered_seconds, rx_bytes, tx_bytes
FROM (
    SELECT toDateTime(slot * {width:UInt32}, 'UTC') AS bucket, region, instance_uuid, port_uuid, network_uuid,
           project_id, user_id, flavor_name, vcpus, image_id, instance_name, host, samples, samples_ended,
           sum(covered_ms) OVER (PARTITION BY region, instance_uuid, port_uuid, slot) AS resource_ms,
           reinterpret(toInt32(if(resource_ms > 1000 * {width:UInt32}, intDiv(covered_ms * 1000 * {width:UInt32}, resource_ms), covered_ms)), 'Decimal(9, 3)') AS covered_seconds,
           rx_bytes, tx_bytes
    FROM (
        SELECT slot, region, instance_uuid, port_uuid, network_uuid, project_id, user_id, flavor_name, vcpus, image_id,
               argMax(s.instance_name, order_key) AS instance_name, argMax(s.host, order_key) AS host,
               toUInt32(count()) AS samples, toUInt32(sum(slot = last_slot)) AS samples_ended, sum(toUInt64(hi - lo)) AS covered_ms,
               toUInt64(sum(part(s.rx_bytes, lo, hi, begin_ms, length))) AS rx_bytes,
               toUInt64(sum(part(s.tx_bytes, lo, hi, begin_ms, length))) AS tx_bytes
        FROM (
            SELECT *, toUInt32(arrayJoin(range(first_slot, last_slot + 1))) AS slot,
                   greatest(toInt64(slot) * 1000 * {width:UInt32}, begin_ms) AS lo,
                   least((toInt64(slot) + 1) * 1000 * {width:UInt32}, end_ms) AS hi
            FROM (
                SELECT region, host, instance_uuid, port_uuid, network_uuid, rx_bytes, tx_bytes,
                       project_id, user_id, flavor_name, vcpus, image_id, instance_name,
                       toUnixTimestamp64Milli(ts) AS end_ms, least(toUnixTimestamp64Milli(begin), end_ms) AS begin_ms, toUInt64(end_ms - begin_ms) AS length,
                       intDiv(end_ms - 1, 1000 * {width:UInt32}) AS last_slot, least(intDiv(begin_ms, 1000 * {width:UInt32}), last_slot) AS first_slot,
                       end_ms * 1048576 + sipHash64(host, instance_name) % 1048576 AS order_key
                FROM (
                    SELECT region, host, epoch, sequence, begin, ts, instance_uuid, port_uuid, network_uuid, rx_bytes, tx_bytes,
                           project_id, user_id, flavor_name, vcpus, image_id, instance_name
                    FROM port_samples FINAL
                    WHERE ts > {from:DateTime('UTC')} AND ts <= {to:DateTime('UTC')} + {reach:UInt32}
                      AND (begin < {to:DateTime('UTC')} OR ts <= {to:DateTime('UTC')}))
                WHERE {since:DateTime('UTC')} = toDateTime(0, 'UTC') OR first_slot + 1 < last_slot
                   OR (region, instance_uuid, toUInt32(first_slot)) IN touched OR (region, instance_uuid, toUInt32(last_slot)) IN touched)) AS s
        WHERE slot >= intDiv(toUnixTimestamp({from:DateTime('UTC')}), {width:UInt32}) AND slot < intDiv(toUnixTimestamp({to:DateTime('UTC')}), {width:UInt32})
          AND ({since:DateTime('UTC')} = toDateTime(0, 'UTC') OR (region, instance_uuid, slot) IN touched)
        GROUP BY slot, region, instance_uuid, port_uuid, network_uuid, project_id, user_id, flavor_name, vcpus, image_id))
WHERE sipHash128((bucket, region, instance_uuid, port_uuid, network_uuid, project_id, user_id, flavor_name, vcpus, image_id, instance_name, host,
                 samples, samples_ended, covered_seconds, rx_bytes, tx_bytes)) NOT IN (
    SELECT sipHash128((bucket, region, instance_uuid, port_uuid, network_uuid, project_id, user_id, flavor_name, vcpus, image_id, instance_name, host,
                      samples, samples_ended, covered_seconds, rx_bytes, tx_bytes))
    FROM {target:Identifier} FINAL
    WHERE bucket >= {from:DateTime('UTC')} AND bucket < {to:DateTime('UTC')})
