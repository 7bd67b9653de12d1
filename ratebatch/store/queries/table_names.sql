-- name:    table_names
-- purpose: The names of the database's tables and views.
-- reads:   system.tables, no data
SELECT name FROM system.tables WHERE database = currentDatabase() ORDER BY name
