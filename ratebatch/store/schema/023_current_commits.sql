-- table:   current_commits
-- purpose: The current commit of each scope and period, of any kind.
-- why:     for reading everything; a reader with a filter uses queries/current_commits.sql, which lets scope and time
--          reach the commits before they are grouped.
CREATE VIEW IF NOT EXISTS {{view "current_commits"}} AS
SELECT scope, begin, max(rank) AS current_rank,
       argMax(end, rank) AS end, argMax(revision, rank) AS revision, argMax(kind, rank) AS kind, argMax(run_id, rank) AS run_id,
       argMax(plan_digest, rank) AS plan_digest, argMax(metrics_digest, rank) AS metrics_digest, argMax(currency, rank) AS currency,
       argMax(usage_rows, rank) AS usage_rows, argMax(usage_fingerprint, rank) AS usage_fingerprint,
       argMax(lines, rank) AS lines, argMax(line_digest, rank) AS line_digest, argMax(total, rank) AS total,
       argMax(unpriced, rank) AS unpriced, argMax(rejected, rank) AS rejected, argMax(skipped, rank) AS skipped,
       argMax(reason, rank) AS reason, argMax(author, rank) AS author, argMax(committed_at, rank) AS committed_at,
       argMax(key, rank) AS key
FROM {{name "period_commits"}} AS c
WHERE c.run_id NOT IN (SELECT run_id FROM {{name "void_attempts"}})
GROUP BY scope, begin
