-- table:   billing_zone
-- purpose: The time zone that months begin in, one row: UTC unless it was set.
-- why:     toStartOfMonth(begin, (SELECT zone FROM billing_zone)) is the month that a period is billed in; it is the date that
--          month_commits and exports call the month.
CREATE VIEW IF NOT EXISTS {{view "billing_zone"}} AS
SELECT if(count() = 0, 'UTC', argMax(s.value, s.changed_at)) AS zone
FROM {{name "billing_settings"}} AS s WHERE s.name = 'billing_timezone'
