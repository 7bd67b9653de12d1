-- name:    touched_hours
-- purpose: The hours in which samples ended that arrived since a moment, and how many.
-- params:  since DateTime('UTC')
-- reads:   the raw samples that arrived since, two time columns
SELECT toDateTime(intDiv(toUnixTimestamp64Milli(ts) - 1, 3600000) * 3600, 'UTC') AS hour, count() AS arrived
FROM (SELECT ts FROM port_samples WHERE epoch != 0 AND ingested_at >= {since:DateTime('UTC')}
      UNION ALL SELECT ts FROM instance_samples WHERE epoch != 0 AND ingested_at >= {since:DateTime('UTC')}
      UNION ALL SELECT ts FROM disk_samples WHERE epoch != 0 AND ingested_at >= {since:DateTime('UTC')})
GROUP BY hour ORDER BY hour
