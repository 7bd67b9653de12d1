-- name:    late_days
-- purpose: Per day, how many committed periods have a tier row that was refreshed after their usage was read, and how many of
--          another length.
-- params:  since DateTime64(6, 'UTC'), period UInt32 (seconds)
-- reads:   CANDIDATES: the tier rows refreshed since, by their skip index, and the commits of those days
SELECT toDate(begin) AS day, countIf(comparable) AS periods, uniqExactIf((scope, begin), NOT comparable) AS others
FROM (/* CANDIDATES */) GROUP BY day ORDER BY day
