-- table:   rated
-- purpose: The rated lines that count: those of each period's current commit.
-- why:     for people and ad-hoc sums. Filters on scope or begin reach the lines but not the commits below; jobs use
--          queries/rated_lines.sql, where they reach both.
CREATE VIEW IF NOT EXISTS {{view "rated"}} AS
SELECT * FROM {{name "rated_lines"}}
WHERE key IN (
    SELECT argMax(if(kind = 'rated', key, 0), rank)
    FROM {{name "period_commits"}}
    WHERE run_id NOT IN (SELECT run_id FROM {{name "void_attempts"}})
    GROUP BY scope, begin)
