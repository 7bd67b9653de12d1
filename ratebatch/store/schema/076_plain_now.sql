-- table:   plain_now
-- purpose: The months whose hint in plain_months still holds; attempts that only priced take back no hint.
-- why:     counting rows per month reads one narrow column, and a month that is closed is read through its frozen commits:
--          those are all its commits only as long as none was added since.
CREATE OR REPLACE VIEW {{view "plain_now"}} AS
SELECT h.month AS month
FROM (SELECT p.month AS month, argMax(p.commits, p.checked_at) AS commits, argMax(p.lines, p.checked_at) AS lines, argMax(p.latest, p.checked_at) AS latest,
             argMax(p.voids, p.checked_at) AS voids
      FROM {{name "plain_months"}} AS p GROUP BY p.month) AS h
INNER JOIN (SELECT toYYYYMM(c.begin) AS month, count() AS commits, max(c.committed_at) AS latest FROM {{name "period_commits"}} AS c GROUP BY month) AS c ON h.month = c.month
INNER JOIN (SELECT toYYYYMM(l.begin) AS month, count() AS lines FROM {{name "rated_lines"}} AS l GROUP BY month) AS l ON h.month = l.month
WHERE h.commits = c.commits AND h.latest = c.latest AND h.lines = l.lines AND h.voids = (SELECT uniqExactIf(v.run_id, NOT v.priced) FROM {{name "void_attempts"}} AS v)
