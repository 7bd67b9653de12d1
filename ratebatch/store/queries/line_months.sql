-- name:    line_months
-- purpose: The months that have rated lines, whether they are closed, when they were last exported, and whether a correction
--          of them waits to be billed.
-- why:     lines of open months are told apart by months in UTC, since nothing is done with them. A correction waits until a
--          later month was closed after it and exported since: until then it is told from both lines, the billed and the new.
-- reads:   one narrow column of rated_lines, two of period_commits; exports and closed_months, small
WITH
    (SELECT groupArray((c.first, c.until, c.month)) FROM closed_months AS c) AS of_closed,
    exported AS (SELECT x.month AS month, max(x.exported_at) AS latest FROM exports AS x WHERE x.dataset = 'lines' GROUP BY x.month)
SELECT l.month AS month, l.lines AS lines, c.closed > 0 AS is_closed, c.closed_at AS closed_at, e.latest AS exported_at,
       c.closed > 0 AND k.latest > c.closed_at AND NOT arrayExists(t -> t.1 > l.month AND t.2 > k.latest AND t.3 >= t.2, (
           SELECT groupArray((n.month, n.closed_at, y.latest)) FROM closed_months AS n
           INNER JOIN exported AS y ON n.month = y.month)) AS waits
FROM (SELECT if(closed_month = toDate(0), toDate(toStartOfMonth(begin)), closed_month) AS month, count() AS lines,
             arrayFirst(m -> begin >= m.1 AND begin < m.2, of_closed).3 AS closed_month
      FROM rated_lines GROUP BY month, closed_month) AS l
LEFT JOIN (SELECT m.month AS month, m.closed AS closed, m.closed_at AS closed_at FROM closed_months AS m) AS c ON l.month = c.month
LEFT JOIN (SELECT arrayFirst(m -> p.begin >= m.1 AND p.begin < m.2, of_closed).3 AS month, max(p.committed_at) AS latest
           FROM period_commits AS p WHERE p.run_id NOT IN (SELECT run_id FROM void_attempts) GROUP BY month) AS k ON l.month = k.month
LEFT JOIN exported AS e ON l.month = e.month
ORDER BY month
