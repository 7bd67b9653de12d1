-- name:    any_line
-- purpose: Whether there is a rated line in a window, whatever became of its attempt.
-- params:  from, to DateTime('UTC')
-- reads:   the first row of rated_lines in the window
SELECT count() > 0 FROM (SELECT 1 FROM rated_lines WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')} LIMIT 1)
