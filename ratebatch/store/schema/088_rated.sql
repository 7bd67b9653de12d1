-- table:   rated
-- purpose: The rated lines that count: those of each period's current commit, in a closed month of its frozen ones.
-- why:     for people and ad-hoc sums. Filters on scope or begin reach the lines but not the commits below; jobs read
--          commits and lines with the same filter. What is rated again in a closed month appears as a correction only.
--          Months of which every line counts (plain_now) are read without their commits; they are looked up once, as a
--          constant, where a subquery would be run at each of its places. A closed month begins and ends in the billing
--          time zone; by UTC's months the hours between would count twice or not at all.
CREATE OR REPLACE VIEW {{view "rated"}} AS
WITH (SELECT groupArray(n.month) FROM {{name "plain_now"}} AS n) AS plain
SELECT * FROM {{name "rated_lines"}}
WHERE has(plain, toYYYYMM(begin))
UNION ALL
SELECT * FROM {{name "rated_lines"}}
WHERE NOT has(plain, toYYYYMM(begin)) AND key IN (
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
