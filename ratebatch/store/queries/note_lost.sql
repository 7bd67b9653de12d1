-- name:    note_lost
-- purpose: Notes the periods of an attempt that have fewer usage rows than were committed, unless that was found last.
-- params:  run_id UUID, from, to DateTime('UTC')
-- reads:   pass_periods of the attempt, the commits of those periods
INSERT INTO late_usage (scope, begin, end, kind, revision, committed_rows, committed_fingerprint, found_rows, found_fingerprint, currency,
                        committed_total, found_total, action, run_id)
SELECT p.scope, p.begin, p.end, 'lost', c.revision, c.usage_rows, c.fingerprint, p.usage_rows, p.usage_fingerprint, c.currency, c.total, c.total, 'hold', p.run_id
FROM (SELECT * FROM pass_periods WHERE run_id = {run_id:UUID} AND lost) AS p
INNER JOIN (
    SELECT k.scope AS scope, k.begin AS begin, max(k.revision) AS revision, argMax(k.usage_rows, k.rank) AS usage_rows,
           argMax(k.usage_fingerprint, k.rank) AS fingerprint, argMax(toString(k.currency), k.rank) AS currency, argMax(k.total, k.rank) AS total
    FROM period_commits AS k
    WHERE k.begin >= {from:DateTime('UTC')} AND k.begin < {to:DateTime('UTC')} AND k.run_id NOT IN (SELECT run_id FROM void_attempts)
    GROUP BY k.scope, k.begin) AS c ON p.scope = c.scope AND p.begin = c.begin
WHERE (p.scope, p.begin, c.revision, p.usage_fingerprint, 'lost') NOT IN (
    SELECT l.scope, l.begin, argMax(l.revision, l.found_at), argMax(l.found_fingerprint, l.found_at), argMax(toString(l.kind), l.found_at)
    FROM late_usage AS l GROUP BY l.scope, l.begin)
