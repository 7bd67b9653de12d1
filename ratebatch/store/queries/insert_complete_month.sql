-- name:    insert_complete_month
-- purpose: Notes that nothing is due in a month.
-- params:  month Date, windows UInt64, commits UInt64, latest DateTime64(6, 'UTC'), voids UInt64
INSERT INTO complete_months (month, windows, commits, latest, voids)
SELECT {month:Date}, {windows:UInt64}, {commits:UInt64}, {latest:DateTime64(6, 'UTC')}, {voids:UInt64}
