-- table:   exports
-- purpose: The same column in the table that shows all shards.
ALTER TABLE {{view "exports"}} ADD COLUMN IF NOT EXISTS mechanism LowCardinality(String) DEFAULT 'overwrite' AFTER dataset
