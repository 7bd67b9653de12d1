-- name:    table_columns
-- purpose: The columns of a table, in its order; none if there is no such table.
-- params:  database String (empty: the current one), table String
-- reads:   system.columns
SELECT name FROM system.columns
WHERE database = if({database:String} = '', currentDatabase(), {database:String}) AND table = {table:String}
ORDER BY position
