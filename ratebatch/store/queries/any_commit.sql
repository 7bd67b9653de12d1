-- name:    any_commit
-- purpose: Whether there was a commit of any kind in a window at a moment.
-- params:  from, to DateTime('UTC'), as_of DateTime64(6, 'UTC')
-- reads:   the first rows of period_commits in the window
-- why:     a month without any is skipped by corrections and by the order in which months are closed.
SELECT count() > 0 FROM (
    SELECT 1 FROM period_commits
    WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')} AND committed_at <= {as_of:DateTime64(6, 'UTC')}
      AND run_id NOT IN (SELECT run_id FROM void_attempts WHERE voided_at <= {as_of:DateTime64(6, 'UTC')})
    LIMIT 1)
