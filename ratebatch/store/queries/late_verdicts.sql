-- name:    late_verdicts
-- purpose: How many late samples of a window were added, came again, or may have been stored.
-- params:  from, to DateTime('UTC')           hours that begin in [from, to)
-- reads:   JUDGED: late_judged
SELECT countIf(verdict = 'new') AS added, countIf(verdict = 'again') AS again, countIf(verdict = 'untold') AS untold FROM (/* JUDGED */)
