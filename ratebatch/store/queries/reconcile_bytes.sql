-- name:    reconcile_bytes
-- purpose: The traffic of ports in a window: the samples' parts inside it beside what the tiers hold.
-- params:  from, to DateTime('UTC')       on edges of the hourly tier
-- reads:   port_samples, port_volume_5min, port_volume_hourly of the window, FINAL
-- why:     of a sample [begin, ts) the tiers give a bucket the difference of floor(v * (edge - begin) / length) at its two
--          edges, so over the window only the differences at the window's own edges remain.
WITH (v, lo, hi, begin_ms, length) -> if(length = 0, toUInt256(v),
        toUInt256(intDiv(toUInt256(v) * toUInt64(hi - begin_ms), length) - intDiv(toUInt256(v) * toUInt64(lo - begin_ms), length))) AS part,
    1000 * toInt64(toUnixTimestamp({from:DateTime('UTC')})) AS first, 1000 * toInt64(toUnixTimestamp({to:DateTime('UTC')})) AS last
SELECT place, sum(rx) AS rx_bytes, sum(tx) AS tx_bytes
FROM (
    SELECT 'raw' AS place,
           sum(part(rx_bytes, greatest(b, first), least(e, last), b, e - b)) AS rx, sum(part(tx_bytes, greatest(b, first), least(e, last), b, e - b)) AS tx
    FROM (SELECT rx_bytes, tx_bytes, toUnixTimestamp64Milli(begin) AS b, toUnixTimestamp64Milli(ts) AS e
          FROM port_samples FINAL WHERE ts > {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')})
    UNION ALL SELECT '5min', sum(toUInt256(rx_bytes)), sum(toUInt256(tx_bytes)) FROM port_volume_5min FINAL WHERE bucket >= {from:DateTime('UTC')} AND bucket < {to:DateTime('UTC')}
    UNION ALL SELECT 'hourly', sum(toUInt256(rx_bytes)), sum(toUInt256(tx_bytes)) FROM port_volume_hourly FINAL WHERE bucket >= {from:DateTime('UTC')} AND bucket < {to:DateTime('UTC')})
GROUP BY place ORDER BY place
