-- name:    pass_differences
-- purpose: The periods of an attempt whose lines do not equal the usage they came from, each with the first difference.
-- params:  run_id UUID
-- reads:   pass_periods and pass_lines of the attempt
-- why:     any row here voids the attempt: usage changed under the pass, or something is wrong.
SELECT if(p.end = toDateTime(0, 'UTC'), l.scope, p.scope) AS scope, if(p.end = toDateTime(0, 'UTC'), l.begin, p.begin) AS begin,
       multiIf(p.end = toDateTime(0, 'UTC'), 'lines of a period that the attempt does not rate',
               p.usage_rows != p.usage_keys, format('{} usage rows have {} distinct keys', toString(p.usage_rows), toString(p.usage_keys)),
               l.lines != l.keys, format('{} lines have {} distinct keys', toString(l.lines), toString(l.keys)),
               p.usage_rows != l.usage_rows, format('{} usage rows became lines of {}', toString(p.usage_rows), toString(l.usage_rows)),
               p.usage_qty != l.qty, format('quantities sum to {}, the lines to {}', toString(p.usage_qty), toString(l.qty)),
               'the lines are of other usage rows') AS difference
FROM (SELECT * FROM pass_periods WHERE run_id = {run_id:UUID} AND NOT lost) AS p
FULL JOIN (SELECT * FROM pass_lines WHERE run_id = {run_id:UUID}) AS l ON p.scope = l.scope AND p.begin = l.begin
WHERE p.end = toDateTime(0, 'UTC') OR p.usage_rows != p.usage_keys OR l.lines != l.keys OR p.usage_rows != l.usage_rows
   OR p.usage_qty != l.qty OR p.usage_fingerprint != l.usage_fingerprint
ORDER BY scope, begin
LIMIT 1000
