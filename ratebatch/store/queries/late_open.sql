-- name:    late_open
-- purpose: The findings of late and lost usage that still stand: no later revision was committed.
-- reads:   late_usage, small; the commits of the periods found
SELECT l.scope AS scope, l.begin AS begin, l.end AS end, l.kind AS kind, l.revision AS revision, l.committed_rows AS committed_rows, l.found_rows AS found_rows,
       l.currency AS currency, l.committed_total AS committed_total, l.found_total AS found_total, l.plan_total AS plan_total, l.action AS action, l.found_at AS found_at
FROM (
    SELECT f.scope AS scope, f.begin AS begin, argMax(f.end, f.found_at) AS end, argMax(f.kind, f.found_at) AS kind, argMax(f.revision, f.found_at) AS revision,
           argMax(f.committed_rows, f.found_at) AS committed_rows, argMax(f.found_rows, f.found_at) AS found_rows, argMax(toString(f.currency), f.found_at) AS currency,
           argMax(f.committed_total, f.found_at) AS committed_total, argMax(f.found_total, f.found_at) AS found_total, argMax(f.plan_total, f.found_at) AS plan_total,
           argMax(f.action, f.found_at) AS action, max(f.found_at) AS found_at
    FROM late_usage AS f GROUP BY f.scope, f.begin) AS l
LEFT JOIN (
    SELECT k.scope AS scope, k.begin AS begin, max(k.revision) AS revision FROM period_commits AS k
    WHERE (k.scope, k.begin) IN (SELECT scope, begin FROM late_usage) AND k.run_id NOT IN (SELECT run_id FROM void_attempts)
    GROUP BY k.scope, k.begin) AS c ON l.scope = c.scope AND l.begin = c.begin
WHERE c.revision <= l.revision AND l.action != 'ignore'
ORDER BY scope, begin
