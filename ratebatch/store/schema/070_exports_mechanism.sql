-- table:   exports
-- purpose: Whether a delivery is complete (overwrite) or holds what is new since the one before at its place (append).
-- why:     retention keeps a revision that was rated again until every place of append deliveries has its difference.
ALTER TABLE {{table "exports"}} ADD COLUMN IF NOT EXISTS mechanism LowCardinality(String) DEFAULT 'overwrite' AFTER dataset
