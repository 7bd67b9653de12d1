-- name:    other_period_lengths
-- purpose: One period that counts, shares time with [from, to) and has another length than the given one.
-- params:  period UInt32 (seconds), from, to DateTime('UTC'), scopes Array(String) (empty: all)
-- reads:   two narrow columns of period_commits; only such periods are looked at closer
-- why:     rating the same time once in hours and once in days would bill it twice.
SELECT scope, begin, end FROM (
    SELECT p.scope AS scope, p.begin AS begin, argMax(p.end, p.rank) AS end, argMax(p.kind, p.rank) AS kind
    FROM period_commits AS p
    WHERE (p.scope, p.begin) IN (
        SELECT scope, begin FROM period_commits
        WHERE begin >= toDateTime(greatest(toUnixTimestamp({from:DateTime('UTC')}), 86400) - 86400, 'UTC') AND begin < {to:DateTime('UTC')} AND end > {from:DateTime('UTC')}
          AND toUnixTimestamp(end) - toUnixTimestamp(begin) != {period:UInt32} AND (empty({scopes:Array(String)}) OR has({scopes:Array(String)}, scope)))
      AND p.run_id NOT IN (SELECT run_id FROM void_attempts)
    GROUP BY p.scope, p.begin)
WHERE kind = 'rated' AND toUnixTimestamp(end) - toUnixTimestamp(begin) != {period:UInt32} AND end > {from:DateTime('UTC')}
ORDER BY begin, scope LIMIT 1
