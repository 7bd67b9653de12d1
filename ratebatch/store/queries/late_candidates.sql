-- name:    late_candidates
-- purpose: Committed periods with a tier row that was refreshed after their usage was read: what may have changed.
-- params:  since DateTime64(6, 'UTC'), period UInt32 (seconds)
-- reads:   for ROWS the refreshed rows of each tier table that a metric reads; the current commits of the days they lie in
-- why:     a period that was rated in another length is named, and no more: its usage cannot be compared with today's periods.
SELECT c.scope AS scope, c.begin AS begin, c.committed AS committed, toUnixTimestamp(c.end) - toUnixTimestamp(c.begin) = {period:UInt32} AS comparable
FROM (
    SELECT scope, toDateTime(intDiv(toUnixTimestamp(bucket), {period:UInt32}) * {period:UInt32}, 'UTC') AS begin, max(refreshed_at) AS refreshed
    FROM (/* ROWS */) GROUP BY scope, begin) AS t
ASOF INNER JOIN (
    SELECT toString(k.scope) AS scope, k.begin AS begin, argMax(k.end, k.rank) AS end, argMax(k.kind, k.rank) AS kind, argMax(k.usage_read_at, k.rank) AS read_at,
           argMax(toUnixTimestamp64Micro(k.committed_at), k.rank) AS committed
    FROM period_commits AS k
    WHERE toDate(k.begin) IN (SELECT DISTINCT toDate(bucket) FROM (/* ROWS */)) AND k.run_id NOT IN (SELECT run_id FROM void_attempts)
    GROUP BY k.scope, k.begin) AS c ON t.scope = c.scope AND t.begin >= c.begin
WHERE c.kind = 'rated' AND t.begin < c.end AND toDateTime64(t.refreshed, 6, 'UTC') >= c.read_at - INTERVAL 10 MINUTE
