-- name:    reconcile_samples
-- purpose: How many distinct samples end in a window, by kind, in the raw tables and in each tier.
-- params:  from, to DateTime('UTC')
-- reads:   the raw tables and the tiers of the window, FINAL
-- why:     samples_ended counts a sample in the one bucket it ends in, so the tiers' sums are counts of distinct samples.
--          A sample that ends on the edge of a bucket belongs to the bucket before.
SELECT kind, place, toUInt64(sum(n)) AS samples
FROM (
    SELECT 'port' AS kind, 'raw' AS place, count() AS n FROM port_samples FINAL WHERE ts > {from:DateTime('UTC')} AND ts <= {to:DateTime('UTC')}
    UNION ALL SELECT 'port', '5min', sum(samples_ended) FROM port_volume_5min FINAL WHERE bucket >= {from:DateTime('UTC')} AND bucket < {to:DateTime('UTC')}
    UNION ALL SELECT 'port', 'hourly', sum(samples_ended) FROM port_volume_hourly FINAL WHERE bucket >= {from:DateTime('UTC')} AND bucket < {to:DateTime('UTC')}
    UNION ALL SELECT 'instance', 'raw', count() FROM instance_samples FINAL WHERE ts > {from:DateTime('UTC')} AND ts <= {to:DateTime('UTC')}
    UNION ALL SELECT 'instance', '5min', sum(samples_ended) FROM instance_metrics_5min FINAL WHERE bucket >= {from:DateTime('UTC')} AND bucket < {to:DateTime('UTC')}
    UNION ALL SELECT 'instance', 'hourly', sum(samples_ended) FROM instance_metrics_hourly FINAL WHERE bucket >= {from:DateTime('UTC')} AND bucket < {to:DateTime('UTC')}
    UNION ALL SELECT 'disk', 'raw', count() FROM disk_samples FINAL WHERE ts > {from:DateTime('UTC')} AND ts <= {to:DateTime('UTC')}
    UNION ALL SELECT 'disk', '5min', sum(samples_ended) FROM disk_metrics_5min FINAL WHERE bucket >= {from:DateTime('UTC')} AND bucket < {to:DateTime('UTC')}
    UNION ALL SELECT 'disk', 'hourly', sum(samples_ended) FROM disk_metrics_hourly FINAL WHERE bucket >= {from:DateTime('UTC')} AND bucket < {to:DateTime('UTC')}
    UNION ALL SELECT toString(kind), 'ingested', sum(samples) FROM ingest_counts FINAL WHERE hour >= {from:DateTime('UTC')} AND hour < {to:DateTime('UTC')} GROUP BY kind
    UNION ALL SELECT toString(kind), 'late', count() FROM late_samples FINAL WHERE ts > {from:DateTime('UTC')} AND ts <= {to:DateTime('UTC')} GROUP BY kind)
GROUP BY kind, place ORDER BY kind, place
