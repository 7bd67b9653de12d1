-- name:    reconcile_samples
-- purpose: Per kind, how many distinct samples end in a window and what bytes lie in it: as they arrived beside what the tiers
--          hold; hour by hour, then added up.
-- params:  from, to DateTime('UTC')            on edges of hours
--          raw_from, five_from, hourly_from DateTime('UTC')    the first hours that the tiers still keep whole
-- reads:   the raw tables, the tiers and ingest_counts of the window, FINAL; late_samples
-- why:     truth is the raw samples while the raw tier keeps the hour (the count may be older than the newest of them), and
--          afterwards the count that was made of them. Late samples that a rollup took up come on top. An hour of which neither is left cannot be checked any more and is given apart.
--          samples_ended counts a sample in the one bucket it ends in. Of a sample [begin, ts) a bucket has the difference of
--          floor(v * (edge - begin) / length) at its two edges; the values are received and sent, or read and written bytes.
WITH
    (v, lo, hi, begin_ms, length) -> if(length = 0, toInt256(v),
        toInt256(intDiv(toUInt256(v) * toUInt64(hi - begin_ms), length)) - toInt256(intDiv(toUInt256(v) * toUInt64(lo - begin_ms), length))) AS part,
    (begin, ts) -> range(
        least(toUInt32(intDiv(toUnixTimestamp64Milli(begin), 3600000)), toUInt32(intDiv(toUnixTimestamp64Milli(ts) - 1, 3600000))),
        toUInt32(intDiv(toUnixTimestamp64Milli(ts) - 1, 3600000)) + 1) AS slots,
    toUInt32(intDiv(toUnixTimestamp({from:DateTime('UTC')}), 3600)) AS first, toUInt32(intDiv(toUnixTimestamp({to:DateTime('UTC')}), 3600)) AS last
SELECT kind,
       sumIf(truth.1, known) AS samples, toString(sumIf(truth.2, known)) AS x, toString(sumIf(truth.3, known)) AS y,
       sumIf(hourly.1, known) AS hourly_samples, toString(sumIf(hourly.2, known)) AS hourly_x, toString(sumIf(hourly.3, known)) AS hourly_y,
       sumIf(truth.1, known AND in_five) AS five_truth, toString(sumIf(truth.2, known AND in_five)) AS five_truth_x, toString(sumIf(truth.3, known AND in_five)) AS five_truth_y,
       sumIf(five.1, known AND in_five) AS five_samples, toString(sumIf(five.2, known AND in_five)) AS five_x, toString(sumIf(five.3, known AND in_five)) AS five_y,
       countIf(known AND in_five AND truth.1 > 0) AS five_hours, countIf(known AND counted) AS counted_hours,
       sumIf(hourly.1, NOT known AND h >= toUnixTimestamp({hourly_from:DateTime('UTC')}) / 3600) AS unknown_samples,
       sumIf(greatest(truth.1, hourly.1), h < toUnixTimestamp({hourly_from:DateTime('UTC')}) / 3600) AS expired_samples,
       sum(late) AS late_samples
FROM (
    SELECT kind, h, h >= toUnixTimestamp({five_from:DateTime('UTC')}) / 3600 AS in_five,
           sumIf(n, place = 'raw') AS raw_n, sumIf(n, place = 'counted') AS counted_n, 
           countIf(place = 'counted') > 0 AND (raw_n < counted_n OR h < toUnixTimestamp({raw_from:DateTime('UTC')}) / 3600) AS counted,
           (greatest(raw_n, counted_n) + sumIf(n, place = 'late in'),
            if(counted, sumIf(x, place = 'counted'), sumIf(x, place = 'raw')) + sumIf(x, place = 'late in'),
            if(counted, sumIf(y, place = 'counted'), sumIf(y, place = 'raw')) + sumIf(y, place = 'late in')) AS truth,
           (sumIf(n, place = '5min'), sumIf(x, place = '5min'), sumIf(y, place = '5min')) AS five,
           (sumIf(n, place = 'hourly'), sumIf(x, place = 'hourly'), sumIf(y, place = 'hourly')) AS hourly,
           sumIf(n, place = 'late') - sumIf(n, place = 'late in') AS late,
           h >= toUnixTimestamp({hourly_from:DateTime('UTC')}) / 3600 AND (countIf(place = 'counted') > 0 OR h >= toUnixTimestamp({raw_from:DateTime('UTC')}) / 3600) AS known
    FROM (
        SELECT 'port' AS kind, slot AS h, 'raw' AS place, toInt64(sum(slot = last_slot)) AS n, sum(part(v, lo, hi, b, e - b)) AS x, sum(part(w, lo, hi, b, e - b)) AS y
        FROM (SELECT ifNull(rx_bytes, 0) AS v, ifNull(tx_bytes, 0) AS w, toUnixTimestamp64Milli(ts) AS e, least(toUnixTimestamp64Milli(begin), e) AS b, arrayJoin(slots(begin, ts)) AS slot,
                     toUInt32(intDiv(e - 1, 3600000)) AS last_slot, greatest(toInt64(slot) * 3600000, b) AS lo, least((toInt64(slot) + 1) * 3600000, e) AS hi
              FROM port_samples FINAL WHERE ts > {from:DateTime('UTC')} AND (begin < {to:DateTime('UTC')} OR ts <= {to:DateTime('UTC')}))
        WHERE slot >= first AND slot < last GROUP BY slot
        UNION ALL
        SELECT 'port', toUInt32(intDiv(toUnixTimestamp(bucket), 3600)) AS slot, '5min', toInt64(sum(samples_ended)), sum(toInt256(rx_bytes)), sum(toInt256(tx_bytes))
        FROM port_volume_5min FINAL WHERE bucket >= {from:DateTime('UTC')} AND bucket < {to:DateTime('UTC')} GROUP BY slot
        UNION ALL
        SELECT 'port', toUInt32(intDiv(toUnixTimestamp(bucket), 3600)) AS slot, 'hourly', toInt64(sum(samples_ended)), sum(toInt256(rx_bytes)), sum(toInt256(tx_bytes))
        FROM port_volume_hourly FINAL WHERE bucket >= {from:DateTime('UTC')} AND bucket < {to:DateTime('UTC')} GROUP BY slot
        UNION ALL
        SELECT 'instance' AS kind, slot AS h, 'raw' AS place, toInt64(sum(slot = last_slot)) AS n, toInt256(0) AS x, toInt256(0) AS y
        FROM (SELECT arrayJoin(slots(begin, ts)) AS slot, toUInt32(intDiv(toUnixTimestamp64Milli(ts) - 1, 3600000)) AS last_slot
              FROM instance_samples FINAL WHERE ts > {from:DateTime('UTC')} AND (begin < {to:DateTime('UTC')} OR ts <= {to:DateTime('UTC')}))
        WHERE slot >= first AND slot < last GROUP BY slot
        UNION ALL
        SELECT 'instance', toUInt32(intDiv(toUnixTimestamp(bucket), 3600)) AS slot, '5min', toInt64(sum(samples_ended)), sum(toInt256(0)), sum(toInt256(0))
        FROM instance_metrics_5min FINAL WHERE bucket >= {from:DateTime('UTC')} AND bucket < {to:DateTime('UTC')} GROUP BY slot
        UNION ALL
        SELECT 'instance', toUInt32(intDiv(toUnixTimestamp(bucket), 3600)) AS slot, 'hourly', toInt64(sum(samples_ended)), sum(toInt256(0)), sum(toInt256(0))
        FROM instance_metrics_hourly FINAL WHERE bucket >= {from:DateTime('UTC')} AND bucket < {to:DateTime('UTC')} GROUP BY slot
        UNION ALL
        SELECT 'disk' AS kind, slot AS h, 'raw' AS place, toInt64(sum(slot = last_slot)) AS n, sum(part(v, lo, hi, b, e - b)) AS x, sum(part(w, lo, hi, b, e - b)) AS y
        FROM (SELECT ifNull(read_bytes, 0) AS v, ifNull(write_bytes, 0) AS w, toUnixTimestamp64Milli(ts) AS e, least(toUnixTimestamp64Milli(begin), e) AS b, arrayJoin(slots(begin, ts)) AS slot,
                     toUInt32(intDiv(e - 1, 3600000)) AS last_slot, greatest(toInt64(slot) * 3600000, b) AS lo, least((toInt64(slot) + 1) * 3600000, e) AS hi
              FROM disk_samples FINAL WHERE ts > {from:DateTime('UTC')} AND (begin < {to:DateTime('UTC')} OR ts <= {to:DateTime('UTC')}))
        WHERE slot >= first AND slot < last GROUP BY slot
        UNION ALL
        SELECT 'disk', toUInt32(intDiv(toUnixTimestamp(bucket), 3600)) AS slot, '5min', toInt64(sum(samples_ended)), sum(toInt256(read_bytes)), sum(toInt256(write_bytes))
        FROM disk_metrics_5min FINAL WHERE bucket >= {from:DateTime('UTC')} AND bucket < {to:DateTime('UTC')} GROUP BY slot
        UNION ALL
        SELECT 'disk', toUInt32(intDiv(toUnixTimestamp(bucket), 3600)) AS slot, 'hourly', toInt64(sum(samples_ended)), sum(toInt256(read_bytes)), sum(toInt256(write_bytes))
        FROM disk_metrics_hourly FINAL WHERE bucket >= {from:DateTime('UTC')} AND bucket < {to:DateTime('UTC')} GROUP BY slot
        UNION ALL
        SELECT replaceOne(toString(kind), 'late_', ''), toUInt32(intDiv(toUnixTimestamp(hour), 3600)), if(startsWith(kind, 'late_'), 'late in', 'counted'), toInt64(samples),
               toInt256(sums['rx_bytes'] + sums['read_bytes']), toInt256(sums['tx_bytes'] + sums['write_bytes'])
        FROM ingest_counts FINAL WHERE hour >= {from:DateTime('UTC')} AND hour < {to:DateTime('UTC')}
        UNION ALL
        SELECT toString(kind), toUInt32(intDiv(toUnixTimestamp64Milli(ts) - 1, 3600000)) AS slot, 'late', toInt64(count()), toInt256(0), toInt256(0)
        FROM late_samples FINAL WHERE ts > {from:DateTime('UTC')} AND ts <= {to:DateTime('UTC')} GROUP BY kind, slot)
    GROUP BY kind, h)
GROUP BY kind ORDER BY kind
