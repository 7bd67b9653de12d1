-- table:   void_attempts
-- purpose: The same column in the table that shows all shards.
ALTER TABLE {{view "void_attempts"}} ADD COLUMN IF NOT EXISTS priced Bool DEFAULT false AFTER reason
