-- name:    scopes_with_lines
-- purpose: The scopes that have rated lines in a window.
-- params:  from, to DateTime('UTC')
-- reads:   period_commits of the window
SELECT DISTINCT scope FROM period_commits
WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')} AND kind = 'rated' AND lines > 0
ORDER BY scope
