-- name:    late_judged
-- purpose: The late samples of a window, and what is known of each: 'new' was never stored; 'again' was stored in time and came
--          again; 'untold' may have been.
-- params:  from, to DateTime('UTC')           hours that begin in [from, to)
-- reads:   late_samples FINAL of the window; ingest_ranges and ingest_sequences of their hosts and hours; where those have
--          nothing, the keys of the hourly tiers
-- why:     a sample whose sequence lies in a range without a hole was stored. One that lies in a hole was not, if the ranges
--          reach as far as the sequences that are known of the hour: those of versions that noted no ranges may have
--          been more. Records of the original producer have no sequence: the second that they tell takes its place, and one
--          among the seconds of which its host's samples were stored may have been one of them. Of an hour that the tiers
--          hold, not by late samples alone, and nothing was noted of nobody can say what it was made of.
SELECT kind, region, host, epoch, sequence, begin, ts, instance_uuid, project_id, record, hour,
       multiIf(epoch != 0 AND reach >= mark, 'again',
               known_last > 0 AND mark BETWEEN known_first AND known_last AND NOT (ranges_last >= known_last AND ranges_first <= known_first), 'untold',
               known_last = 0 AND ranges_last = 0 AND (region, hour) IN (
                   SELECT region, bucket
                   FROM (SELECT 'instance_metrics_hourly' AS tier, region, bucket, instance_uuid FROM instance_metrics_hourly
                         UNION ALL SELECT 'port_volume_hourly', region, bucket, instance_uuid FROM port_volume_hourly
                         UNION ALL SELECT 'disk_metrics_hourly', region, bucket, instance_uuid FROM disk_metrics_hourly)
                   WHERE bucket > {from:DateTime('UTC')} - 3600 AND bucket <= {to:DateTime('UTC')} + 7948800
                     AND (tier, region, bucket, instance_uuid) NOT IN (SELECT toString(tier), region, bucket, instance_uuid FROM tier_bases WHERE samples = 0)
                     AND (region, bucket) NOT IN (SELECT region, hour FROM ingest_sequences) AND (region, bucket) NOT IN (SELECT region, hour FROM ingest_counts)), 'untold',
               'new') AS verdict
FROM (
    SELECT l.kind AS kind, l.region AS region, l.host AS host, l.epoch AS epoch, l.sequence AS sequence, l.begin AS begin, l.ts AS ts, l.instance_uuid AS instance_uuid,
           l.project_id AS project_id, l.record AS record, l.hour AS hour, l.mark AS mark, l.known_first AS known_first, l.known_last AS known_last,
           l.ranges_first AS ranges_first, l.ranges_last AS ranges_last, r.reach AS reach
    FROM (
        SELECT m.kind AS kind, m.region AS region, m.host AS host, m.epoch AS epoch, m.sequence AS sequence, m.begin AS begin, m.ts AS ts, m.instance_uuid AS instance_uuid, m.project_id AS project_id, m.record AS record, m.hour AS hour, m.mark AS mark,
               k.known_first AS known_first, k.known_last AS known_last, n.ranges_first AS ranges_first, n.ranges_last AS ranges_last
        FROM (SELECT kind, region, host, epoch, sequence, begin, ts, instance_uuid, project_id, record,
                     toDateTime(intDiv(toUnixTimestamp64Milli(ts) - 1, 3600000) * 3600, 'UTC') AS hour, if(epoch = 0, toUInt64(toUnixTimestamp(ts)), sequence) AS mark
              FROM late_samples FINAL
              WHERE ts > {from:DateTime('UTC')} AND (begin < {to:DateTime('UTC')} OR ts <= {to:DateTime('UTC')})) AS m
        LEFT JOIN (SELECT q.region AS region, q.host AS host, q.epoch AS epoch, q.hour AS hour, min(q.first) AS known_first, max(q.last) AS known_last
                   FROM ingest_sequences AS q GROUP BY region, host, epoch, hour) AS k
            ON k.region = m.region AND k.host = m.host AND k.epoch = m.epoch AND k.hour = m.hour
        LEFT JOIN (SELECT q.region AS region, q.host AS host, q.epoch AS epoch, q.hour AS hour, min(q.first) AS ranges_first, max(q.last) AS ranges_last
                   FROM ingest_ranges AS q GROUP BY region, host, epoch, hour) AS n
            ON n.region = m.region AND n.host = m.host AND n.epoch = m.epoch AND n.hour = m.hour) AS l
    ASOF LEFT JOIN (SELECT q.region AS region, q.host AS host, q.epoch AS epoch, q.hour AS hour, q.first AS first,
                           max(q.last) OVER (PARTITION BY q.region, q.host, q.epoch, q.hour ORDER BY q.first) AS reach
                    FROM ingest_ranges AS q) AS r
        ON r.region = l.region AND r.host = l.host AND r.epoch = l.epoch AND r.hour = l.hour AND r.first <= l.mark)
