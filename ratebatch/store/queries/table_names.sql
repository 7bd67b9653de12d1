-- name:    table_names
-- purpose: The names of the database's tables and views, and their comments.
-- reads:   system.tables, no data
SELECT name, comment FROM system.tables WHERE database = currentDatabase() ORDER BY name
