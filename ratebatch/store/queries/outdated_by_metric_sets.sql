-- name:    outdated_by_metric_sets
-- purpose: How many rated periods in a window were priced by another metric set than this one.
-- params:  digest String, from, to DateTime('UTC')
-- reads:   period_commits of the window: one narrow column, and what is found by it
-- why:     usually none is, and grouping every commit to learn that costs seconds at millions of them.
SELECT count() FROM (
    SELECT argMax(kind, rank) AS kind, argMax(metrics_digest, rank) AS digest
    FROM period_commits AS c
    WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')} AND c.run_id NOT IN (SELECT run_id FROM void_attempts)
      AND (c.scope, c.begin) IN (
          SELECT o.scope, o.begin FROM period_commits AS o
          WHERE o.begin >= {from:DateTime('UTC')} AND o.begin < {to:DateTime('UTC')} AND o.kind = 'rated' AND o.metrics_digest != {digest:String})
    GROUP BY scope, begin)
WHERE kind = 'rated' AND digest != {digest:String}
