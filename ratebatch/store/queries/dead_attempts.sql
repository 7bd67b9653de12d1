-- name:    dead_attempts
-- purpose: Attempts that wrote lines or periods, committed nothing and began before a time: how many, and their lines.
-- params:  before DateTime('UTC')
-- reads:   run_id of rated_lines, pass_periods and period_commits
-- why:     an attempt's id is a UUIDv7, so it tells when the attempt began.
SELECT count() AS attempts, sum(of_lines) AS lines FROM (
    SELECT a.run_id AS run_id, sum(a.of_lines) AS of_lines FROM (
        SELECT run_id, count() AS of_lines FROM rated_lines GROUP BY run_id
        UNION ALL SELECT DISTINCT run_id, 0 FROM pass_periods) AS a
    GROUP BY a.run_id)
WHERE run_id NOT IN (SELECT run_id FROM period_commits) AND run_id NOT IN (SELECT run_id FROM void_attempts)
  AND UUIDv7ToDateTime(run_id, 'UTC') < toDateTime64({before:DateTime('UTC')}, 3, 'UTC')
