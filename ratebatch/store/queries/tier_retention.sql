-- name:    tier_retention
-- purpose: The TTL of a tier, as text, from the table's definition.
-- params:  table String
-- reads:   system.tables
SELECT extract(create_table_query, 'TTL [^\\n]*?toIntervalSecond\\((\\d+)\\)') FROM system.tables
WHERE database = currentDatabase() AND name = {table:String}
