-- name:    superseded
-- purpose: How many commits count no more because a rated one took their place before a time; how many of them may go; their lines.
-- params:  before DateTime64(6, 'UTC'), exported Bool (whether the month must have been exported since)
-- reads:   period_commits grouped once; exports and month_commits, small
SELECT count() AS commits, countIf(may_go) AS removable, sumIf(of_lines, may_go) AS lines FROM (
/* query superseded_keys */)
