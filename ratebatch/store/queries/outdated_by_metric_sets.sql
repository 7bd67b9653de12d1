-- name:    outdated_by_metric_sets
-- purpose: How many rated periods in a window were priced by another metric set than this one.
-- params:  digest String, from, to DateTime('UTC')
-- reads:   period_commits of the window
SELECT count() FROM (
    SELECT argMax(kind, rank) AS kind, argMax(metrics_digest, rank) AS digest
    FROM period_commits AS c
    WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')} AND c.run_id NOT IN (SELECT run_id FROM void_attempts)
    GROUP BY scope, begin)
WHERE kind = 'rated' AND digest != {digest:String}
