-- name:    ingest_sources
-- purpose: The sources that watermarks wait for, up to when each is drained, and the regions that it has records of.
-- reads:   ingest_progress, small
SELECT source, minIf(drained_at, NOT gone) AS drained, arraySort(groupUniqArrayArray(regions)) AS regions
FROM ingest_progress FINAL
GROUP BY source HAVING countIf(NOT gone) > 0
ORDER BY source
