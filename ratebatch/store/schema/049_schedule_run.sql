-- table:   reprocess_schedules
-- purpose: The run that executes a schedule, so that its state follows that run's lease.
-- why:     a run that was killed writes nothing any more: its schedule would be running for ever.
ALTER TABLE {{table "reprocess_schedules"}} ADD COLUMN IF NOT EXISTS run_id UUID AFTER error
