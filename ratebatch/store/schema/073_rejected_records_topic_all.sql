-- table:   rejected_records
-- purpose: The same column in the table that shows all shards; elsewhere it is the same table, and nothing changes.
ALTER TABLE {{view "rejected_records"}} ADD COLUMN IF NOT EXISTS topic_id UUID AFTER topic
