-- name:    drop_line_month
-- purpose: Removes the rated lines of a month; its commits and totals stay.
-- params:  month UInt32   (YYYYMM)
-- why:     rated_lines is partitioned by this number, so other months are not touched.
ALTER TABLE rated_lines DELETE WHERE toYYYYMM(begin) = {month:UInt32} SETTINGS mutations_sync = 2
