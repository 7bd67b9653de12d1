-- name:    schedules
-- purpose: Every reprocessing schedule as it is now, oldest first.
-- reads:   reprocess_schedules, small
SELECT s.id AS id, argMax(s.scopes, s.changed_at) AS scopes, argMax(s.begin, s.changed_at) AS begin, argMax(s.end, s.changed_at) AS end,
       argMax(s.state, s.changed_at) AS state, argMax(s.started_at, s.changed_at) AS started_at, argMax(s.done_until, s.changed_at) AS done_until,
       argMax(s.waiting, s.changed_at) AS waiting, argMax(s.reason, s.changed_at) AS reason, argMax(s.author, s.changed_at) AS author,
       argMax(s.error, s.changed_at) AS error, argMax(s.run_id, s.changed_at) AS run_id, min(s.created_at) AS created_at, max(s.changed_at) AS changed_at
FROM reprocess_schedules AS s
GROUP BY s.id ORDER BY created_at, id
