-- name:    line_months
-- purpose: The months that have rated lines, whether they are closed, and when they were last exported.
-- why:     lines of open months are told apart by months in UTC, since nothing is done with them.
-- reads:   one narrow column of rated_lines; exports and closed_months, small
SELECT l.month AS month, l.lines AS lines, c.closed > 0 AS is_closed, c.closed_at AS closed, e.latest AS exported
FROM (SELECT if(closed_month = toDate(0), toDate(toStartOfMonth(begin)), closed_month) AS month, count() AS lines,
             arrayFirst(m -> begin >= m.1 AND begin < m.2, (SELECT groupArray((c.first, c.until, c.month)) FROM closed_months AS c)).3 AS closed_month
      FROM rated_lines GROUP BY month, closed_month) AS l
LEFT JOIN (SELECT m.month AS month, m.closed AS closed, m.closed_at AS closed_at FROM closed_months AS m) AS c ON l.month = c.month
LEFT JOIN (SELECT x.month AS month, max(x.exported_at) AS latest FROM exports AS x WHERE x.dataset = 'lines' GROUP BY x.month) AS e ON l.month = e.month
ORDER BY month
