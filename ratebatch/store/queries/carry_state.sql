-- name:    carry_state
-- purpose: The current commits of the months of scopes in which what a later period rests on may have changed.
-- params:  since DateTime64(6, 'UTC'), zone String (that months begin in)
-- reads:   the commits made since, by committed_at; three columns of the months they lie in; all commits of the suspects
-- why:     in a steady hour each scope's newest period was committed by one attempt, after all before it were: no suspects. There is
--          one when a later period was rated before (by another attempt), when an earlier one was committed after the attempt had read
--          the state, or when several attempts wrote in the month.
WITH
    fresh AS (
        SELECT scope, toStartOfMonth(begin, {zone:String}) AS month, min(begin) AS first_begin, max(begin) AS last_begin,
               minIf(usage_read_at, kind = 'rated') AS read_at, groupUniqArray(run_id) AS attempts
        FROM period_commits
        WHERE committed_at >= {since:DateTime64(6, 'UTC')} AND run_id NOT IN (SELECT run_id FROM void_attempts)
        GROUP BY scope, month),
    suspects AS (
        SELECT DISTINCT p.scope, toStartOfMonth(p.begin, {zone:String}) AS in_month
        FROM period_commits AS p INNER JOIN fresh AS f ON p.scope = f.scope AND toStartOfMonth(p.begin, {zone:String}) = f.month
        WHERE p.begin >= (SELECT toDateTime(min(month), 'UTC') - INTERVAL 1 DAY FROM fresh)
          AND (p.begin > (SELECT min(first_begin) FROM fresh) OR p.committed_at >= (SELECT min(read_at) FROM fresh))
          AND (length(f.attempts) > 1 OR NOT has(f.attempts, p.run_id) AND (p.begin > f.first_begin OR p.begin < f.last_begin AND p.committed_at >= f.read_at)))
SELECT scope, month, begin, until, digest, currency, of_carry_in, of_used, total, of_usages
FROM (
    SELECT k.scope AS scope, k.begin AS begin, toStartOfMonth(k.begin, {zone:String}) AS month, argMax(k.end, k.rank) AS until,
           argMax(toString(k.plan_digest), k.rank) AS digest, argMax(toString(k.currency), k.rank) AS currency, argMax(k.kind, k.rank) AS of_kind,
           CAST(argMax(k.carry_in, k.rank), 'Map(String, Decimal(38, 18))') AS of_carry_in, CAST(argMax(k.used, k.rank), 'Map(String, Decimal(38, 18))') AS of_used,
           argMax(k.total, k.rank) AS total, toUInt64(argMax(k.usage_rows, k.rank)) AS of_usages
    FROM period_commits AS k
    WHERE k.begin >= (SELECT toDateTime(min(month), 'UTC') - INTERVAL 1 DAY FROM fresh) AND (k.scope, toStartOfMonth(k.begin, {zone:String})) IN (suspects)
      AND k.run_id NOT IN (SELECT run_id FROM void_attempts)
    GROUP BY k.scope, k.begin)
WHERE of_kind = 'rated'
ORDER BY scope, begin
