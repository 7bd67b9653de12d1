-- name:    tier_disk
-- purpose: Traffic and sizes of disks in buckets of any width: the one text behind both tiers, the refreshable views and a rollup by hand.
-- params:  width UInt32                   seconds of a bucket; divides a day
--          from, to DateTime('UTC')       buckets that begin in [from, to); to is at most now, so only closed buckets
--          reach UInt32                   no sample of a bucket before to ends later than this many seconds after to
--          all Bool                       every bucket; else the touched ones
--          since DateTime('UTC')          when the last refresh began, less some minutes; 1970: unknown
--          target Identifier              the tier's table: a row that stands there already is not written again
-- reads:   disk_samples FINAL: its sort key holds the sample's identity, so repeats merge while they are read, and memory
--          does not grow with the time span; days are partitions and a repeat lies in the same one.
-- why:     a sample covers [begin, ts). Where it crosses a bucket's edge its part is floor(v * (hi - begin) / length)
--          - floor(v * (lo - begin) / length): whole numbers that add up to v, the remainder in the later bucket. A
--          sample that ends on an edge, or has no length there, belongs to the bucket before the edge.
--          Time that several samples cover (two hosts in a migration) counts once: it is scaled down over the resource's rows. Averages
--          of sizes are weighted by time and round down; byte_seconds is the exact sum of gauge * time, scaled alike.
WITH
    (v, lo, hi, begin_ms, length) -> if(length = 0, toUInt128(v),
        intDiv(toUInt128(v) * toUInt64(hi - begin_ms), length) - intDiv(toUInt128(v) * toUInt64(lo - begin_ms), length)) AS part,
    -- weighted by time; of samples without length the plain average; null where no sample told the value
    (weighted, weight, plain, n) -> if(n = 0, NULL, toUInt64(intDiv(if(weight > 0, weighted, plain), greatest(if(weight > 0, weight, n), 1)))) AS average,
    (begin, ts) -> arrayMap(slot -> toUInt32(slot), range(
        least(intDiv(toUnixTimestamp64Milli(begin), 1000 * {width:UInt32}), intDiv(toUnixTimestamp64Milli(ts) - 1, 1000 * {width:UInt32})),
        intDiv(toUnixTimestamp64Milli(ts) - 1, 1000 * {width:UInt32}) + 1)) AS slots,
    touched AS (
        -- since the last refresh: what has closed, and what a sample reached late
        SELECT DISTINCT region, instance_uuid, arrayJoin(slots(begin, ts)) AS slot
        FROM disk_samples
        WHERE NOT {all:Bool} AND {since:DateTime('UTC')} > toDateTime(0, 'UTC')
          AND (ingested_at >= {since:DateTime('UTC')} OR ts > {since:DateTime('UTC')} - {width:UInt32})
        UNION ALL
        -- a server that has just started does not know its last refresh: the hours of which the tier holds too little
        SELECT region, instance_uuid, arrayJoin(range(toUInt32(h * intDiv(3600, {width:UInt32})), toUInt32((h + 1) * intDiv(3600, {width:UInt32})))) AS slot
        FROM (
            SELECT region, instance_uuid, intDiv(arrayJoin(slots(begin, ts)) * {width:UInt32}, 3600) AS h, toInt64(count()) AS n
            FROM disk_samples FINAL
            WHERE NOT {all:Bool} AND {since:DateTime('UTC')} = toDateTime(0, 'UTC')
              AND begin < {to:DateTime('UTC')}
            GROUP BY region, instance_uuid, h
            UNION ALL
            SELECT region, instance_uuid, intDiv(toUnixTimestamp(bucket), 3600) AS h, -toInt64(sum(samples)) AS n
            FROM {target:Identifier} FINAL
            WHERE NOT {all:Bool} AND {since:DateTime('UTC')} = toDateTime(0, 'UTC') AND bucket >= {from:DateTime('UTC')} AND bucket < {to:DateTime('UTC')}
            GROUP BY region, instance_uuid, h)
        GROUP BY region, instance_uuid, h
        HAVING sum(n) > 0)
SELECT bucket, region, instance_uuid, device, project_id, user_id, flavor_name, vcpus, image_id, instance_name, host,
       samples, samples_ended, covered_seconds,
       read_bytes, write_bytes, read_requests, write_requests, capacity_bytes_avg, allocation_bytes_avg, physical_bytes_avg, capacity_byte_seconds
FROM (
    SELECT toDateTime(slot * {width:UInt32}, 'UTC') AS bucket, region, instance_uuid, device,
           project_id, user_id, flavor_name, vcpus, image_id, instance_name, host, samples, samples_ended,
           sum(covered_ms) OVER (PARTITION BY slot, instance_uuid, device, region) AS resource_ms, intervalLengthSumMerge(intervals) OVER (PARTITION BY slot, instance_uuid, device, region) AS union_ms,
           reinterpret(toInt32(if(resource_ms > union_ms, intDiv(covered_ms * union_ms, resource_ms), covered_ms)), 'Decimal(9, 3)') AS covered_seconds,
           read_bytes, write_bytes, read_requests, write_requests, capacity_bytes_avg, allocation_bytes_avg, physical_bytes_avg,
           reinterpret(toInt128(if(resource_ms > union_ms, intDiv(capacity_bytes_ms * union_ms, resource_ms), capacity_bytes_ms)), 'Decimal(38, 3)') AS capacity_byte_seconds
    FROM (
        SELECT slot, region, instance_uuid, device, project_id, user_id, flavor_name, vcpus, image_id,
               argMax(s.instance_name, order_key) AS instance_name, argMax(s.host, order_key) AS host,
               toUInt32(count()) AS samples, toUInt32(sum(slot = last_slot)) AS samples_ended, sum(weight) AS covered_ms, intervalLengthSumState(lo, hi) AS intervals,
               toUInt64(sum(part(ifNull(s.read_bytes, 0), lo, hi, begin_ms, length))) AS read_bytes,
               toUInt64(sum(part(ifNull(s.write_bytes, 0), lo, hi, begin_ms, length))) AS write_bytes,
               toUInt64(sum(part(ifNull(s.read_requests, 0), lo, hi, begin_ms, length))) AS read_requests,
               toUInt64(sum(part(ifNull(s.write_requests, 0), lo, hi, begin_ms, length))) AS write_requests,
               sum(toUInt128(ifNull(s.capacity_bytes, 0)) * weight) AS capacity_bytes_ms, average(capacity_bytes_ms, sum(if(isNull(s.capacity_bytes), 0, weight)), sum(toUInt128(ifNull(s.capacity_bytes, 0))), count(s.capacity_bytes)) AS capacity_bytes_avg,
               sum(toUInt128(ifNull(s.allocation_bytes, 0)) * weight) AS allocation_bytes_ms, average(allocation_bytes_ms, sum(if(isNull(s.allocation_bytes), 0, weight)), sum(toUInt128(ifNull(s.allocation_bytes, 0))), count(s.allocation_bytes)) AS allocation_bytes_avg,
               sum(toUInt128(ifNull(s.physical_bytes, 0)) * weight) AS physical_bytes_ms, average(physical_bytes_ms, sum(if(isNull(s.physical_bytes), 0, weight)), sum(toUInt128(ifNull(s.physical_bytes, 0))), count(s.physical_bytes)) AS physical_bytes_avg
        FROM (
            SELECT *, toUInt32(arrayJoin(range(first_slot, last_slot + 1))) AS slot,
                   greatest(toInt64(slot) * 1000 * {width:UInt32}, begin_ms) AS lo,
                   least((toInt64(slot) + 1) * 1000 * {width:UInt32}, end_ms) AS hi, toUInt64(hi - lo) AS weight
            FROM (
                SELECT region, host, instance_uuid, device, read_bytes, write_bytes, read_requests, write_requests, capacity_bytes, allocation_bytes, physical_bytes,
                       project_id, user_id, flavor_name, vcpus, image_id, instance_name, from_slot,
                       toUnixTimestamp64Milli(ts) AS end_ms, least(toUnixTimestamp64Milli(begin), end_ms) AS begin_ms, toUInt64(end_ms - begin_ms) AS length,
                       intDiv(end_ms - 1, 1000 * {width:UInt32}) AS last_slot, least(intDiv(begin_ms, 1000 * {width:UInt32}), last_slot) AS first_slot,
                       end_ms * 1048576 + sipHash64(host, instance_name) % 1048576 AS order_key
                FROM (
                    SELECT region, host, epoch, sequence, begin, ts, instance_uuid, device, read_bytes, write_bytes, read_requests, write_requests, capacity_bytes, allocation_bytes, physical_bytes,
                           project_id, user_id, flavor_name, vcpus, image_id, instance_name,
                           intDiv(toUnixTimestamp({from:DateTime('UTC')}), {width:UInt32}) AS from_slot
                    FROM disk_samples FINAL
                    WHERE ts > {from:DateTime('UTC')} AND ts <= {to:DateTime('UTC')} + {reach:UInt32}
                      AND (begin < {to:DateTime('UTC')} OR ts <= {to:DateTime('UTC')})))) AS s
        WHERE slot >= from_slot AND slot < intDiv(toUnixTimestamp({to:DateTime('UTC')}), {width:UInt32})
          AND ({all:Bool} OR (region, instance_uuid, slot) IN touched)
        GROUP BY slot, region, instance_uuid, device, project_id, user_id, flavor_name, vcpus, image_id))
WHERE sipHash128((bucket, region, instance_uuid, device, project_id, user_id, flavor_name, vcpus, image_id, instance_name, host,
                 samples, samples_ended, covered_seconds,
       read_bytes, write_bytes, read_requests, write_requests, capacity_bytes_avg, allocation_bytes_avg, physical_bytes_avg, capacity_byte_seconds)) NOT IN (
    SELECT sipHash128((bucket, region, instance_uuid, device, project_id, user_id, flavor_name, vcpus, image_id, instance_name, host,
                      samples, samples_ended, covered_seconds,
       read_bytes, write_bytes, read_requests, write_requests, capacity_bytes_avg, allocation_bytes_avg, physical_bytes_avg, capacity_byte_seconds))
    FROM {target:Identifier} FINAL
    WHERE bucket >= {from:DateTime('UTC')} AND bucket < {to:DateTime('UTC')})
