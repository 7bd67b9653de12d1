-- table:   instance_metrics_hourly_refresh
-- purpose: Keeps instance_metrics_hourly up to date from the distinct raw samples, every ten minutes.
-- why:     it recomputes only closed buckets that a sample touched since the last refresh, late ones included, and writes
--          only rows that changed; the text is queries/tier_instance.sql, which a rollup by hand runs too. All views read raw
--          samples: none waits for another. EMPTY: the first refresh comes with the clock, not while migrating.
CREATE MATERIALIZED VIEW IF NOT EXISTS {{view "instance_metrics_hourly_refresh"}}
REFRESH EVERY 10 MINUTE APPEND TO {{local "instance_metrics_hourly"}} EMPTY AS
{{.Tier "instance" 3600}}
