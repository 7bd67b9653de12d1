-- name:    void_dead_attempts
-- purpose: Voids the attempts that dead_attempts counts, before their lines are removed.
-- params:  before DateTime('UTC'), reason String
-- reads:   run_id of rated_lines, pass_periods and period_commits
-- why:     a stalled run that wakes up later commits nothing: insert_commits looks for its id here.
INSERT INTO void_attempts (run_id, reason)
SELECT run_id, {reason:String} FROM (
    SELECT DISTINCT run_id FROM rated_lines UNION DISTINCT SELECT DISTINCT run_id FROM pass_periods)
WHERE run_id NOT IN (SELECT run_id FROM period_commits) AND run_id NOT IN (SELECT run_id FROM void_attempts)
  AND UUIDv7ToDateTime(run_id, 'UTC') < toDateTime64({before:DateTime('UTC')}, 3, 'UTC')
