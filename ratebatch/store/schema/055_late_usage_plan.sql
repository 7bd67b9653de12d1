-- table:   late_usage
-- purpose: What a period would cost by the plan in force now, beside found_total, which is by the plan that it was rated with.
-- why:     late usage and a changed plan are two reasons for one difference; whoever decides on late usage needs them apart.
ALTER TABLE {{table "late_usage"}} ADD COLUMN IF NOT EXISTS plan_total Decimal(76, 18) DEFAULT found_total AFTER found_total
