-- name:    count_late_port
-- purpose: Counts the late samples that were added to the hourly tier, per region and hour: reconcile expects them there.
-- params:  from, to DateTime('UTC')           hours that begin in [from, to)
-- reads:   late samples by the text of tier_port (LATE)
INSERT INTO ingest_counts (kind, region, hour, samples, sums, counted_at)
SELECT 'late_port', region, bucket, toUInt64(sum(samples_ended)), map('rx_bytes', reinterpret(toInt128(sum(rx_bytes)), 'Decimal(38, 0)'), 'tx_bytes', reinterpret(toInt128(sum(tx_bytes)), 'Decimal(38, 0)')), now64(6)
FROM (/* LATE */)
WHERE bucket >= {from:DateTime('UTC')} AND bucket < {to:DateTime('UTC')}
GROUP BY region, bucket
