-- name:    export_window
-- purpose: How much of a window each scope has committed, and since when it is rated at all.
-- params:  from, to DateTime('UTC'), as_of DateTime64(6, 'UTC'), month Date, closed UInt32
-- reads:   period_commits of the window; of earlier ones only each scope's first begin
-- why:     periods must follow each other without a hole from the scope's first one, so the seconds covered tell a
--          hole without a list of periods; complete_until is where the first hole begins. A disabled period is settled; a reset one has to be rated again.
SELECT scope, first, covered, last_until, periods, lines, complete_until FROM (
SELECT scope, min(at) AS first, toUInt64(sumIf(until - at, settled)) AS covered, max(if(settled, until, toDateTime(0, 'UTC'))) AS last_until,
       countIf(settled) AS periods, sum(of_lines) AS lines,
       arraySort(groupArrayIf(toUnixTimestamp(at), settled)) AS begins, arraySort(groupArrayIf(toUnixTimestamp(until), settled)) AS ends,
       arrayFirstIndex((b, e) -> b != e, arrayPopFront(begins), arrayPopBack(ends)) AS hole,
       greatest(toUnixTimestamp(first), toUnixTimestamp({from:DateTime('UTC')})) AS start,
       toDateTime(multiIf(empty(begins), start, begins[1] > start, start, hole > 0, ends[hole], ends[-1]), 'UTC') AS complete_until
FROM (
    SELECT scope, begin AS at, argMax(end, rank) AS until, argMax(kind, rank) IN ('rated', 'disabled') AS settled,
           if(argMax(kind, rank) = 'rated', argMax(lines, rank), 0) AS of_lines
    FROM period_commits
    WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')} AND committed_at <= {as_of:DateTime64(6, 'UTC')}
      AND run_id NOT IN (SELECT run_id FROM void_attempts WHERE voided_at <= {as_of:DateTime64(6, 'UTC')})
      AND ({closed:UInt32} = 0 OR key IN (SELECT key FROM month_commits WHERE month = {month:Date} AND closed = {closed:UInt32} AND kind = 'commit'))
    GROUP BY scope, begin
    UNION ALL
    SELECT scope, min(begin) AS at, min(begin) AS until, false AS settled, 0 AS of_lines
    FROM period_commits
    WHERE begin < {from:DateTime('UTC')} AND committed_at <= {as_of:DateTime64(6, 'UTC')}
    GROUP BY scope)
GROUP BY scope)
ORDER BY scope
