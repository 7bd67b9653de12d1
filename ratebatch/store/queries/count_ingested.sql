-- name:    count_ingested
-- purpose: Counts the distinct samples and adds up their bytes per kind, region and hour, for the closed hours that a sample
--          reached since the last count: what stays when raw samples expire.
-- params:  since DateTime('UTC')          the last count, less some minutes; 1970: count everything
--          counted_at DateTime64(6, 'UTC') the server's time when the count began
--          oldest, to DateTime('UTC')     hours that begin in [oldest, to): the raw tier keeps them whole, and they are closed
-- reads:   the raw samples of the touched hours, FINAL; ingest_counts
-- why:     counts are made from distinct samples each time and never added up, so repeats cannot disturb them. A sample
--          counts in the hour it ends in; its bytes are split over hours as the tiers do (see tier_port), so sums compare
--          with the hourly tier to the byte. An hour with fewer samples than were counted before has lost some: its row stays.
--          The moment is the begin of the whole count, of which this is the last statement: what arrives while it runs is
--          looked at next time, by all of them.
INSERT INTO ingest_counts (kind, region, hour, samples, sums, counted_at)
WITH
    (v, lo, hi, begin_ms, length) -> if(length = 0, toUInt256(v),
        toUInt256(intDiv(toUInt256(v) * toUInt64(hi - begin_ms), length) - intDiv(toUInt256(v) * toUInt64(lo - begin_ms), length))) AS part,
    (begin, ts) -> range(
        least(toUInt32(intDiv(toUnixTimestamp64Milli(begin), 3600000)), toUInt32(intDiv(toUnixTimestamp64Milli(ts) - 1, 3600000))),
        toUInt32(intDiv(toUnixTimestamp64Milli(ts) - 1, 3600000)) + 1) AS slots,
    touched AS (
        SELECT 'port' AS kind, arrayJoin(slots(begin, ts)) AS slot FROM port_samples
        WHERE ingested_at >= {since:DateTime('UTC')} OR ts > {since:DateTime('UTC')} - 3600
        UNION DISTINCT SELECT 'instance', arrayJoin(slots(begin, ts)) FROM instance_samples
        WHERE ingested_at >= {since:DateTime('UTC')} OR ts > {since:DateTime('UTC')} - 3600
        UNION DISTINCT SELECT 'disk', arrayJoin(slots(begin, ts)) FROM disk_samples
        WHERE ingested_at >= {since:DateTime('UTC')} OR ts > {since:DateTime('UTC')} - 3600),
    (SELECT toDateTime(greatest(ifNull(minOrNull(slot), 0) * 3600, toUnixTimestamp({oldest:DateTime('UTC')})), 'UTC') FROM touched) AS first,
    port_hours AS (
        SELECT 'port' AS kind, region, slot, sum(slot = last_slot) AS n, sum(part(rx_bytes, lo, hi, b, e - b)) AS x, sum(part(tx_bytes, lo, hi, b, e - b)) AS y
        FROM (SELECT region, rx_bytes, tx_bytes, toUnixTimestamp64Milli(ts) AS e, least(toUnixTimestamp64Milli(begin), e) AS b, arrayJoin(slots(begin, ts)) AS slot,
                     toUInt32(intDiv(e - 1, 3600000)) AS last_slot, greatest(toInt64(slot) * 3600000, b) AS lo, least((toInt64(slot) + 1) * 3600000, e) AS hi
              FROM port_samples FINAL WHERE ts > first AND (begin < {to:DateTime('UTC')} OR ts <= {to:DateTime('UTC')}))
        WHERE (kind, slot) IN touched
        GROUP BY region, slot),
    instance_hours AS (
        SELECT 'instance' AS kind, region, slot, sum(slot = last_slot) AS n, toUInt256(0) AS x, toUInt256(0) AS y
        FROM (SELECT region, arrayJoin(slots(begin, ts)) AS slot, toUInt32(intDiv(toUnixTimestamp64Milli(ts) - 1, 3600000)) AS last_slot
              FROM instance_samples FINAL WHERE ts > first AND (begin < {to:DateTime('UTC')} OR ts <= {to:DateTime('UTC')}))
        WHERE (kind, slot) IN touched
        GROUP BY region, slot),
    disk_hours AS (
        SELECT 'disk' AS kind, region, slot, sum(slot = last_slot) AS n, sum(part(read_value, lo, hi, b, e - b)) AS x, sum(part(write_value, lo, hi, b, e - b)) AS y
        FROM (SELECT region, ifNull(read_bytes, 0) AS read_value, ifNull(write_bytes, 0) AS write_value,
                     toUnixTimestamp64Milli(ts) AS e, least(toUnixTimestamp64Milli(begin), e) AS b, arrayJoin(slots(begin, ts)) AS slot,
                     toUInt32(intDiv(e - 1, 3600000)) AS last_slot, greatest(toInt64(slot) * 3600000, b) AS lo, least((toInt64(slot) + 1) * 3600000, e) AS hi
              FROM disk_samples FINAL WHERE ts > first AND (begin < {to:DateTime('UTC')} OR ts <= {to:DateTime('UTC')}))
        WHERE (kind, slot) IN touched
        GROUP BY region, slot)
SELECT c.kind, c.region, c.hour, c.samples, c.sums, {counted_at:DateTime64(6, 'UTC')}
FROM (
    SELECT kind, region, toDateTime(slot * 3600, 'UTC') AS hour, toUInt64(n) AS samples,
           CAST(multiIf(kind = 'port', map('rx_bytes', reinterpret(toInt128(x), 'Decimal(38, 0)'), 'tx_bytes', reinterpret(toInt128(y), 'Decimal(38, 0)')),
                        kind = 'disk', map('read_bytes', reinterpret(toInt128(x), 'Decimal(38, 0)'), 'write_bytes', reinterpret(toInt128(y), 'Decimal(38, 0)')),
                        CAST(map() AS Map(String, Decimal(38, 0)))) AS Map(LowCardinality(String), Decimal(38, 0))) AS sums
    FROM (SELECT * FROM port_hours UNION ALL SELECT * FROM instance_hours UNION ALL SELECT * FROM disk_hours)
    WHERE hour >= {oldest:DateTime('UTC')} AND hour < {to:DateTime('UTC')}) AS c
LEFT JOIN (SELECT kind, region, hour, samples, sums FROM ingest_counts FINAL) AS o ON o.kind = c.kind AND o.region = c.region AND o.hour = c.hour
WHERE c.samples > o.samples OR c.samples = o.samples AND (c.sums != o.sums OR o.hour = toDateTime(0, 'UTC'))
