-- table:   month_commits
-- purpose: Where a closed month ends; its rows of kind close have where it begins in begin.
-- why:     months begin in the billing time zone. The instants are stored with the close, so that no reader needs to know the zone.
ALTER TABLE {{table "month_commits"}} ADD COLUMN IF NOT EXISTS until DateTime('UTC') DEFAULT toDateTime(0, 'UTC') AFTER begin
