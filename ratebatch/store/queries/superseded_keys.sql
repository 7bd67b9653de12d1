-- name:    superseded_keys
-- purpose: Commits that count no more because a rated one took their place before a time, and whether they may be removed.
-- params:  before DateTime64(6, 'UTC'), exported Bool (whether the month must have been exported since)
-- reads:   period_commits twice; exports and month_commits, small
-- why:     what a close ever froze stays. What was rated again and not exported since stays too: the last delivery still shows it,
--          and the next append delivery needs it: of places of append deliveries the one that is furthest behind counts. What was
--          rated after its month was first closed stays, also of scopes that the close did not know: a later month's invoice may
--          have billed the difference to it as a correction, and the next correction starts from there.
SELECT p.scope AS scope, p.key AS key, p.lines AS of_lines,
       NOT {exported:Bool} OR c.committed <= arrayMax(arrayMap(e -> if(p.begin >= e.1 AND p.begin < e.2, e.3, toDateTime64(0, 6, 'UTC')), (
           SELECT groupArray((e.first, e.until, e.latest)) FROM (
               SELECT if(x.end = toDateTime(0, 'UTC'), toDateTime(x.month, 'UTC'), x.begin) AS first,
                      if(x.end = toDateTime(0, 'UTC'), toDateTime(x.month + INTERVAL 1 MONTH, 'UTC'), x.end) AS until, least(max(x.exported_at), min(if(x.mechanism = 'append', a.latest, toDateTime64('2106-01-01 00:00:00', 6, 'UTC')))) AS latest
               FROM exports AS x
               LEFT JOIN (SELECT location, month, max(exported_at) AS latest FROM exports WHERE mechanism = 'append' GROUP BY location, month) AS a
                   ON x.location = a.location AND x.month = a.month
               GROUP BY first, until) AS e))) AS may_go
FROM period_commits AS p
INNER JOIN (
    SELECT k.scope AS scope, k.begin AS begin, max(k.rank) AS rank, argMax(k.kind, k.rank) AS kind, argMax(k.committed_at, k.rank) AS committed
    FROM period_commits AS k WHERE k.run_id NOT IN (SELECT run_id FROM void_attempts) GROUP BY k.scope, k.begin
    HAVING count() > 1) AS c ON p.scope = c.scope AND p.begin = c.begin
WHERE NOT arrayExists(m -> p.begin >= m.1 AND p.begin < m.2 AND p.committed_at > m.3, (
          SELECT groupArray((m.first, m.till, m.at)) FROM (
              SELECT if(x.until = toDateTime(0, 'UTC'), toDateTime(x.month, 'UTC'), x.begin) AS first,
                     if(x.until = toDateTime(0, 'UTC'), toDateTime(x.month + INTERVAL 1 MONTH, 'UTC'), x.until) AS till, min(x.closed_at) AS at
              FROM month_commits AS x WHERE x.kind = 'close' GROUP BY first, till) AS m))
  AND p.rank != c.rank AND c.kind = 'rated' AND c.committed < {before:DateTime64(6, 'UTC')}
  AND p.key NOT IN (SELECT key FROM month_commits WHERE kind = 'commit') AND p.run_id NOT IN (SELECT run_id FROM void_attempts)
