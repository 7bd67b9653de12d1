-- table:   disk_metrics_5min_refresh
-- purpose: Keeps disk_metrics_5min up to date from the distinct raw samples, every five minutes.
-- why:     it recomputes only closed buckets that a sample touched since the last refresh, late ones included, and writes
--          only rows that changed; the text is queries/tier_disk.sql, which a rollup by hand runs too. All views read raw
--          samples: none waits for another. EMPTY: the first refresh comes with the clock, not while migrating.
CREATE MATERIALIZED VIEW IF NOT EXISTS {{view "disk_metrics_5min_refresh"}}
REFRESH EVERY 5 MINUTE APPEND TO {{local "disk_metrics_5min"}} EMPTY AS
{{.Tier "disk" 300}}
