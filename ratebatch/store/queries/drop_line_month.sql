-- name:    drop_line_month
-- purpose: Removes the rated lines of a billing month; its commits and totals stay.
-- params:  from, to DateTime('UTC')   [from, to)
-- why:     rated_lines is partitioned by month (UTC), so partitions outside the bounds are not touched.
ALTER TABLE rated_lines DELETE WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')} SETTINGS mutations_sync = 2
