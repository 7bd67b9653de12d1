-- name:    lines_delivered
-- purpose: Whether the lines of a closed month were exported to any place since that close.
-- params:  month Date, closed UInt32 (number of the close)
-- reads:   exports, small; month_commits, only its close and reopen rows
SELECT count() > 0 FROM exports AS x
WHERE x.dataset = 'lines' AND x.month = {month:Date}
  AND x.exported_at >= (SELECT max(c.closed_at) FROM closed_months AS c WHERE c.month = {month:Date} AND c.closed = {closed:UInt32})
