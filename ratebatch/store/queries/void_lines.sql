-- name:    void_lines
-- purpose: The void attempts that still have lines, with how many.
-- reads:   run_id of rated_lines
SELECT l.run_id AS run_id, count() AS lines FROM rated_lines AS l
WHERE l.run_id IN (SELECT run_id FROM void_attempts) GROUP BY l.run_id ORDER BY l.run_id
