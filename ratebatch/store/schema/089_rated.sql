-- table:   rated
-- purpose: The rated lines that count: those of each period's current commit, in a closed month of its frozen ones.
-- why:     for people and ad-hoc sums. Filters on scope or begin reach the lines but not the commits below; jobs read
--          commits and lines with the same filter. What is rated again in a closed month appears as a correction only.
--          Months of which every line counts (plain_now) are read without their commits, and when there are no others
--          the filters fold to constants: a month's total then costs about twice the plain sum. Hints are looked up once,
--          as constants, and after the engine has taken its snapshot of the lines: lines that come in between are seen by
--          the look but not by the sum. Shards of a cluster take theirs later, so there every month is read through its
--          commits. A closed month begins and ends in the billing time zone; by UTC's months the hours
--          between would count twice or not at all.
CREATE OR REPLACE VIEW {{view "rated"}} AS
WITH {{if .Cluster}}emptyArrayUInt32() AS plain, 0 AS every
{{else}}(SELECT groupArray(n.month) FROM {{name "plain_now"}} AS n) AS plain,
     hasAll(plain, (SELECT groupArray(p.month) FROM (SELECT toYYYYMM(l.begin) AS month, count() FROM {{name "rated_lines"}} AS l GROUP BY month) AS p)) AS every
{{end}}SELECT * FROM {{name "rated_lines"}}
WHERE every OR has(plain, toYYYYMM(begin))
UNION ALL
SELECT * FROM {{name "rated_lines"}}
WHERE NOT every AND NOT has(plain, toYYYYMM(begin)) AND key IN (
    SELECT argMax(if(kind = 'rated', key, 0), rank)
    FROM {{name "period_commits"}}
    WHERE run_id NOT IN (SELECT run_id FROM {{name "void_attempts"}})
      AND NOT has(plain, toYYYYMM(begin))
      AND NOT arrayExists(m -> begin >= m.1 AND begin < m.2, (SELECT groupArray((c.first, c.until)) FROM {{name "closed_months"}} AS c))
    GROUP BY scope, begin
    UNION ALL
    SELECT f.key FROM {{name "month_commits"}} AS f
    WHERE f.kind = 'commit' AND NOT has(plain, toYYYYMM(f.begin))
      AND (f.month, f.closed) IN (SELECT c.month, c.closed FROM {{name "closed_months"}} AS c))
