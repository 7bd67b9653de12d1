-- name:    count_late_instance
-- purpose: Counts the late samples that were added to the hourly tier, per region and hour: reconcile expects them there.
-- params:  from, to DateTime('UTC')           hours that begin in [from, to)
-- reads:   late samples by the text of tier_instance (LATE)
INSERT INTO ingest_counts (kind, region, hour, samples, sums, counted_at)
SELECT 'late_instance', region, bucket, toUInt64(sum(samples_ended)), CAST(map() AS Map(LowCardinality(String), Decimal(38, 0))), now64(6)
FROM (/* LATE */)
WHERE bucket >= {from:DateTime('UTC')} AND bucket < {to:DateTime('UTC')}
GROUP BY region, bucket
