-- name:    web_commit_currencies
-- purpose: The currency of each run's commits of some scopes and periods.
-- params:  scopes Array(String), from, to DateTime('UTC')
-- reads:   period_commits of the scopes and window
SELECT DISTINCT toString(c.scope), c.begin, c.run_id, toString(c.currency) FROM period_commits AS c
WHERE c.scope IN {scopes:Array(String)} AND c.begin >= {from:DateTime('UTC')} AND c.begin < {to:DateTime('UTC')}
