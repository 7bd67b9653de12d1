-- name:    current_totals
-- purpose: What the current commits of a window amount to, per currency, as frozen_totals says it of a close.
-- params:  from, to DateTime('UTC')
-- reads:   the window's commits
SELECT currency, count() AS periods, sum(of_lines) AS lines, sum(digest) AS line_digest, sum(of_total) AS total,
       sum(cityHash64(scope, begin, commit_key)) AS keys, count() AS distinct_periods
FROM (
    SELECT p.scope AS scope, p.begin AS begin, argMax(p.kind, p.rank) AS kind, argMax(p.key, p.rank) AS commit_key, argMax(p.lines, p.rank) AS of_lines,
           argMax(p.line_digest, p.rank) AS digest, argMax(p.total, p.rank) AS of_total, argMax(toString(p.currency), p.rank) AS currency
    FROM period_commits AS p
    WHERE p.begin >= {from:DateTime('UTC')} AND p.begin < {to:DateTime('UTC')} AND p.run_id NOT IN (SELECT run_id FROM void_attempts)
    GROUP BY p.scope, p.begin)
WHERE kind != 'reset'
GROUP BY currency ORDER BY currency
