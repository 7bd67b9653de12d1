-- name:    web_line_state
-- purpose: What changes when periods of a window that had lines get others: how often one was rated again or reset, and voided attempts.
-- params:  scope String ('' for any), from, to DateTime('UTC')
-- reads:   one column of the window's commits; void_attempts
-- why:     a period that is rated for the first time moves no line between pages of a list, so it does not count.
SELECT countIf(revision > 1) AS again, (SELECT uniqExactIf(run_id, NOT priced) FROM void_attempts) AS voids
FROM period_commits
WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')} AND ({scope:String} = '' OR scope = {scope:String})
