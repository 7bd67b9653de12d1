-- name:    refreshed_days
-- purpose: The days in which tiers may hold rows that were refreshed since, and whether that can be said of all of them.
-- params:  tables Array(String)       the tiers
--          since DateTime64(6, 'UTC')
-- reads:   system.parts and system.tables, no data
-- why:     a row is refreshed when its insert begins, and its part is written after that, merged later still; an hour more is for
--          clocks that were set. Asking each of a year's day partitions by its skip index took longer than all else of a look.
--          A cluster's tables of these names have no parts of their own: there every day is asked.
SELECT (SELECT count() FROM system.tables WHERE database = currentDatabase() AND name IN {tables:Array(String)} AND engine LIKE '%MergeTree') = length({tables:Array(String)}) AS whole,
       groupUniqArray(toDate(s.partition)) AS days
FROM system.parts AS s
WHERE s.active AND s.database = currentDatabase() AND s.table IN {tables:Array(String)} AND s.modification_time >= toDateTime({since:DateTime64(6, 'UTC')}, 'UTC') - INTERVAL 1 HOUR
