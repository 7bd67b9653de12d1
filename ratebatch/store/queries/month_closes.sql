-- name:    month_closes
-- purpose: Every close and reopen of months, oldest first.
-- reads:   month_commits, only its close and reopen rows
SELECT m.month, m.closed, m.kind, m.periods, m.lines, m.line_digest, m.total, m.currency, m.reason, m.author, m.closed_at
FROM month_commits AS m WHERE m.kind IN ('close', 'reopen') ORDER BY m.closed_at, m.month, m.currency
