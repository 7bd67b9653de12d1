-- name:    late_untold
-- purpose: Late samples of which nobody can tell whether they were stored in time, by host and hour.
-- params:  from, to DateTime('UTC')           hours that begin in [from, to)
-- reads:   JUDGED: late_judged
SELECT region, host, hour, count() AS samples FROM (/* JUDGED */) WHERE verdict = 'untold'
GROUP BY region, host, hour ORDER BY hour, region, host LIMIT 100
