-- name:    watermarks
-- purpose: Per region, up to when the input is complete: what was set last; else, where ingest reads it, nowhere (1970);
--          else the least of its kinds' newest samples, or of a kind without samples the begin of the newest hour of its
--          tier (that hour itself may still grow).
-- params:  whole Bool (false: of regions that nothing was set for only those with rows in the last two days of all tables),
--          as_of DateTime64(6, 'UTC') (what was set or arrived later does not count)
-- reads:   watermarks and ingest_progress (small); of the regions in neither ts and ingested_at of the raw samples and bucket
--          of the hourly tiers, of their newest partitions or, whole, of all; max() of a partitioning column alone reads no rows
-- why:     while ingest brings in what waited in the topics, the newest sample says nothing about what is still to come: of
--          a region that it reads its own watermark counts, or none. A partition that was never read to its end may hold
--          records of any region, so none follows its samples then.
--          Kinds come by topics or loads of their own, so one may lag: the region waits for the slowest. A kind that is two
--          days behind the newest of the region is one that it no longer sends; else nothing of it would ever be rated
--          again. A kind that it never sent has no row, and holds nothing up.
WITH
    2 * 86400 AS silent,
    (SELECT min(source) FROM ingest_progress FINAL WHERE NOT gone AND drained_at = toDateTime64(0, 3, 'UTC')) AS undrained,
    (SELECT max(at) FROM (
        SELECT toUnixTimestamp(max(ts)) AS at FROM instance_samples UNION ALL SELECT toUnixTimestamp(max(ts)) FROM port_samples UNION ALL SELECT toUnixTimestamp(max(ts)) FROM disk_samples
        UNION ALL SELECT toUnixTimestamp(max(bucket)) FROM instance_metrics_hourly UNION ALL SELECT toUnixTimestamp(max(bucket)) FROM port_volume_hourly UNION ALL SELECT toUnixTimestamp(max(bucket)) FROM disk_metrics_hourly)) AS newest,
    toDateTime(if({whole:Bool}, 0, newest - least(newest, 2 * silent)), 'UTC') AS since,
    toDateTime({as_of:DateTime64(6, 'UTC')}, 'UTC') AS arrived,
    said AS (
        SELECT region, complete_until, source, 3 AS precedence FROM (
            SELECT toString(w.region) AS region, argMax(w.complete_until, w.set_at) AS complete_until, argMax(toString(w.source), w.set_at) AS source
            FROM watermarks AS w WHERE w.set_at <= {as_of:DateTime64(6, 'UTC')} GROUP BY w.region)
        WHERE source != 'unset'
        UNION ALL SELECT DISTINCT arrayJoin(regions), toDateTime(0, 'UTC'), 'ingest has not drained it yet', 2 FROM ingest_progress FINAL
        WHERE source IN (SELECT source FROM ingest_progress FINAL WHERE NOT gone))
SELECT region, argMax(complete_until, precedence) AS complete_until, argMax(source, precedence) AS source
FROM (
    SELECT region, complete_until, source, precedence FROM said
    UNION ALL SELECT region, if(undrained != '', toDateTime(0, 'UTC'), min(until)), if(undrained != '', concat('ingest has not drained ', undrained, ' yet'), argMin(source, (until, source))), 1
    FROM (SELECT region, until, source, max(until) OVER (PARTITION BY region) AS last
        FROM (SELECT region, argMax(at, from_samples) AS until, if(max(from_samples), 'newest sample', 'newest hour') AS source
            FROM (
                SELECT toString(region) AS region, 'instance' AS kind, toDateTime(max(ts), 'UTC') AS at, true AS from_samples FROM instance_samples WHERE ts >= since AND ingested_at < arrived AND region NOT IN (SELECT region FROM said) GROUP BY region
                UNION ALL SELECT toString(region), 'port', toDateTime(max(ts), 'UTC'), true FROM port_samples WHERE ts >= since AND ingested_at < arrived AND region NOT IN (SELECT region FROM said) GROUP BY region
                UNION ALL SELECT toString(region), 'disk', toDateTime(max(ts), 'UTC'), true FROM disk_samples WHERE ts >= since AND ingested_at < arrived AND region NOT IN (SELECT region FROM said) GROUP BY region
                UNION ALL SELECT toString(region), 'instance', max(bucket), false FROM instance_metrics_hourly WHERE bucket >= since AND region NOT IN (SELECT region FROM said) GROUP BY region
                UNION ALL SELECT toString(region), 'port', max(bucket), false FROM port_volume_hourly WHERE bucket >= since AND region NOT IN (SELECT region FROM said) GROUP BY region
                UNION ALL SELECT toString(region), 'disk', max(bucket), false FROM disk_metrics_hourly WHERE bucket >= since AND region NOT IN (SELECT region FROM said) GROUP BY region)
            GROUP BY region, kind))
    WHERE until >= last - toIntervalSecond(silent) AND ({whole:Bool} OR toUnixTimestamp(last) + silent >= newest)
    GROUP BY region)
GROUP BY region
ORDER BY region
