-- name:    watermarks
-- purpose: Per region, up to when the input is complete: what was set last, else the newest sample, else the begin of the
--          newest hour of a tier (that hour itself may still grow).
-- params:  whole Bool (false: of regions that nothing was set for only those with rows in a table's last two days),
--          as_of DateTime64(6, 'UTC') (what was set later does not count)
-- reads:   watermarks (small); ts of the raw samples and bucket of the hourly tiers, of their newest partitions or, whole, of
--          all; max() of a partitioning column alone reads no rows
SELECT region, argMax(complete_until, (precedence, set_at)) AS complete_until, argMax(source, (precedence, set_at)) AS source
FROM (
    SELECT region, complete_until, source, 3 AS precedence, set_at FROM (
        SELECT w.region AS region, argMax(w.complete_until, w.set_at) AS complete_until, argMax(toString(w.source), w.set_at) AS source, max(w.set_at) AS set_at
        FROM watermarks AS w WHERE w.set_at <= {as_of:DateTime64(6, 'UTC')} GROUP BY w.region)
    WHERE source != 'unset'
    UNION ALL SELECT region, toDateTime(max(ts), 'UTC'), 'newest sample', 2, toDateTime64(0, 6, 'UTC') FROM instance_samples WHERE ts >= if({whole:Bool}, toDateTime(0, 'UTC'), (SELECT max(ts) FROM instance_samples) - 172800) GROUP BY region
    UNION ALL SELECT region, toDateTime(max(ts), 'UTC'), 'newest sample', 2, toDateTime64(0, 6, 'UTC') FROM port_samples WHERE ts >= if({whole:Bool}, toDateTime(0, 'UTC'), (SELECT max(ts) FROM port_samples) - 172800) GROUP BY region
    UNION ALL SELECT region, toDateTime(max(ts), 'UTC'), 'newest sample', 2, toDateTime64(0, 6, 'UTC') FROM disk_samples WHERE ts >= if({whole:Bool}, toDateTime(0, 'UTC'), (SELECT max(ts) FROM disk_samples) - 172800) GROUP BY region
    UNION ALL SELECT region, max(bucket), 'newest hour', 1, toDateTime64(0, 6, 'UTC') FROM instance_metrics_hourly WHERE bucket >= if({whole:Bool}, toDateTime(0, 'UTC'), (SELECT max(bucket) FROM instance_metrics_hourly) - 172800) GROUP BY region
    UNION ALL SELECT region, max(bucket), 'newest hour', 1, toDateTime64(0, 6, 'UTC') FROM port_volume_hourly WHERE bucket >= if({whole:Bool}, toDateTime(0, 'UTC'), (SELECT max(bucket) FROM port_volume_hourly) - 172800) GROUP BY region
    UNION ALL SELECT region, max(bucket), 'newest hour', 1, toDateTime64(0, 6, 'UTC') FROM disk_metrics_hourly WHERE bucket >= if({whole:Bool}, toDateTime(0, 'UTC'), (SELECT max(bucket) FROM disk_metrics_hourly) - 172800) GROUP BY region)
GROUP BY region
ORDER BY region
