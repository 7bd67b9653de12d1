-- name:    commit_carries
-- purpose: What a commit stored of each account of tiered prices: added up before the period, and in it.
-- params:  scope String, begin DateTime('UTC'), run_id UUID
-- reads:   period_commits by (scope, begin)
SELECT account, in_before, used[account] AS added
FROM period_commits
ARRAY JOIN mapKeys(carry_in) AS account, mapValues(carry_in) AS in_before
WHERE scope = {scope:String} AND begin = {begin:DateTime('UTC')} AND run_id = {run_id:UUID}
ORDER BY account
