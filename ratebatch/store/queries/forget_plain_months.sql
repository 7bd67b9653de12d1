-- name:    forget_plain_months
-- purpose: Takes back what was noted of every month, before rows are removed.
-- reads:   plain_months, one row a look
-- why:     the number is one that no month has; a look that began earlier loses to it (plain_months).
INSERT INTO plain_months (month, commits, lines, latest, voids, checked_at)
SELECT DISTINCT p.month, 18446744073709551615, 0, toDateTime64(0, 6, 'UTC'), 0, now64(6) FROM plain_months AS p
