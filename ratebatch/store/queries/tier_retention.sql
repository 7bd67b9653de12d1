-- name:    tier_retention
-- purpose: How long a table keeps rows at least, by their own time: seconds, 0 if it has no TTL, -1 if its TTL is not one that is understood; and the TTL's text.
-- params:  table String
-- reads:   system.tables
-- why:     on a cluster TABLE is the Distributed table, which has no TTL: that of TABLE_local counts. Clauses that only move
--          rows or compress them anew delete nothing; of those that do, the earliest counts, months as their shortest.
--          One over another column or with a condition says nothing about a bucket.
SELECT toInt64(multiIf(empty(ttl), 0, arrayExists(c -> NOT match(c, '^(toDateTime\\(ts\\)|ts|bucket|hour) \\+ toInterval(Second|Minute|Hour|Day|Week|Month|Quarter|Year)\\(\\d+\\)( DELETE)?$'), deleting), -1,
               empty(deleting), 0,
               arrayMin(arrayMap(c -> toInt64OrZero(extract(c, '\\((\\d+)\\)(?: DELETE)?$'))
                   * transform(extract(c, 'toInterval([A-Z][a-z]+)'), ['Second', 'Minute', 'Hour', 'Day', 'Week', 'Month', 'Quarter', 'Year'], [1, 60, 3600, 86400, 604800, 2419200, 7689600, 31536000], 0), deleting)))) AS keep, ttl
FROM (
    SELECT ifNull(anyOrNull(extract(engine_full, ' TTL (.*?)(?: SETTINGS |$)')), '') AS ttl,
           arrayFilter(c -> NOT match(c, ' (TO (VOLUME|DISK)|RECOMPRESS) '), splitByString(', ', ttl)) AS deleting
    FROM system.tables WHERE database = currentDatabase() AND name IN ({table:String}, concat({table:String}, '_local')) AND engine LIKE '%MergeTree')
