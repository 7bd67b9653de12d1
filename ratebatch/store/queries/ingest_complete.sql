-- name:    ingest_complete
-- purpose: Per region, the moment up to which everything that its topics held is stored, and the watermark written last.
-- reads:   ingest_progress and watermarks, small
-- why:     a region's records lie in all partitions of a source, and a region may have several sources: the slowest of all
--          partitions counts. One that was never drained (1970) holds everything up.
SELECT p.region, p.complete, w.latest
FROM (
    SELECT region, min(complete) AS complete
    FROM (SELECT source, min(drained_at) AS complete, groupUniqArrayArray(regions) AS of FROM ingest_progress FINAL WHERE NOT gone GROUP BY source)
    ARRAY JOIN of AS region
    GROUP BY region) AS p
LEFT JOIN (SELECT toString(region) AS region, max(complete_until) AS latest FROM watermarks GROUP BY region) AS w ON w.region = p.region
ORDER BY p.region
