-- name:    line_months
-- purpose: The months that have rated lines, whether they are closed, and when they were rated since they were.
-- why:     lines of open months are told apart by months in UTC, since nothing is done with them.
-- reads:   one narrow column of rated_lines, two of period_commits; closed_months, small
WITH (SELECT groupArray((c.first, c.until, c.month, c.closed_at)) FROM closed_months AS c) AS of_closed
SELECT l.month AS month, l.lines AS lines, c.closed > 0 AS is_closed, c.closed_at AS closed_at, k.earliest AS rated_first, k.latest AS rated_last
FROM (SELECT if(closed_month = toDate(0), toDate(toStartOfMonth(begin)), closed_month) AS month, count() AS lines,
             arrayFirst(m -> begin >= m.1 AND begin < m.2, of_closed).3 AS closed_month
      FROM rated_lines GROUP BY month, closed_month) AS l
LEFT JOIN (SELECT m.month AS month, m.closed AS closed, m.closed_at AS closed_at FROM closed_months AS m) AS c ON l.month = c.month
LEFT JOIN (SELECT arrayFirst(m -> p.begin >= m.1 AND p.begin < m.2 AND p.committed_at > m.4, of_closed).3 AS month, min(p.committed_at) AS earliest, max(p.committed_at) AS latest
           FROM period_commits AS p WHERE p.run_id NOT IN (SELECT run_id FROM void_attempts) GROUP BY month) AS k ON l.month = k.month
ORDER BY month
