-- name:    ingest_complete
-- purpose: Per region, the moment up to which everything that its topics held is stored, of which source that is the moment,
--          up to when the fastest of its sources is complete, and the watermark that is in force.
-- reads:   ingest_progress and watermarks, small
-- why:     a region's records lie in all partitions of a source, and a region may have several sources: the slowest of all
--          partitions counts. One that was never drained (1970) holds everything up.
--          A partition that is gone holds nothing up, and its regions stay those of its source: a topic that took its place
--          need not have records of each.
--          In force is what was set last, not the greatest ever: else one that an operator set too far ahead and took back
--          (unset: 1970) would keep ingest from writing its own until that time.
SELECT p.region, p.complete, p.slowest, p.fastest, w.latest
FROM (
    SELECT region, min(until) AS complete, argMin(source, (until, source)) AS slowest, max(until) AS fastest
    FROM (SELECT source, minIf(drained_at, NOT gone) AS until, groupUniqArrayArray(regions) AS of FROM ingest_progress FINAL GROUP BY source HAVING countIf(NOT gone) > 0)
    ARRAY JOIN of AS region
    GROUP BY region) AS p
LEFT JOIN (SELECT toString(region) AS region, argMax(complete_until, set_at) AS latest FROM watermarks GROUP BY region) AS w ON w.region = p.region
ORDER BY p.region
