-- table:   void_attempts
-- purpose: Whether an attempt was void from its begin on, to price only: it never has commits.
-- why:     a look for late usage prices by such an attempt in every run. Hints of months count void attempts, which take commits
--          back; these take nothing back, and counting them would end every hint within the hour.
ALTER TABLE {{table "void_attempts"}} ADD COLUMN IF NOT EXISTS priced Bool DEFAULT false AFTER reason
