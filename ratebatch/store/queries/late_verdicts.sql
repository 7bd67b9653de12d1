-- name:    late_verdicts
-- purpose: How many late samples of a window were added, whole or in part, came again, or may have been stored; when the
--          last of those that were added in part ends; and how many of those that were added begin before the window.
-- params:  from, to DateTime('UTC')           hours that begin in [from, to)
-- reads:   JUDGED: late_judged
-- why:     of a sample that ends after the window only the hours in it are added: the rest of it is owed still.
SELECT countIf(verdict = 'new' AND ts <= {to:DateTime('UTC')}) AS added, countIf(verdict = 'new' AND ts > {to:DateTime('UTC')}) AS partly,
       maxIf(ts, verdict = 'new' AND ts > {to:DateTime('UTC')}) AS last, countIf(verdict = 'new' AND begin < {from:DateTime('UTC')}) AS earlier, countIf(verdict = 'again') AS again, countIf(verdict = 'untold') AS untold FROM (/* JUDGED */)
