-- name:    pass_differences
-- purpose: The scopes of an attempt with lines that do not equal the usage they came from, each with its first difference and with how
--          many periods of it the attempt rates.
-- params:  run_id UUID
-- reads:   pass_periods and pass_lines of the attempt
-- why:     any row here keeps its scope from being committed by this attempt: usage changed under the pass, or something is wrong.
SELECT d.scope AS scope, d.begin AS begin, d.difference AS difference, n.periods AS periods
FROM (
    SELECT if(p.end = toDateTime(0, 'UTC'), l.scope, p.scope) AS scope, min(if(p.end = toDateTime(0, 'UTC'), l.begin, p.begin) AS at) AS begin,
           argMin(multiIf(p.end = toDateTime(0, 'UTC'), 'lines of a period that the attempt does not rate',
                   p.usage_rows != p.usage_keys, format('{} usage rows have {} distinct keys', toString(p.usage_rows), toString(p.usage_keys)),
                   l.lines != l.keys, format('{} lines have {} distinct keys', toString(l.lines), toString(l.keys)),
                   p.usage_rows != l.usage_rows, format('usage changed while it was rated: {} usage rows became lines of {}', toString(p.usage_rows), toString(l.usage_rows)),
                   p.usage_qty != l.qty, format('usage changed while it was rated: quantities sum to {}, the lines to {}', toString(p.usage_qty), toString(l.qty)),
                   'usage changed while it was rated: the lines are of other usage rows'), at) AS difference
    FROM (SELECT * FROM pass_periods WHERE run_id = {run_id:UUID} AND NOT lost) AS p
    FULL JOIN (SELECT * FROM pass_lines WHERE run_id = {run_id:UUID}) AS l ON p.scope = l.scope AND p.begin = l.begin
    WHERE p.end = toDateTime(0, 'UTC') OR p.usage_rows != p.usage_keys OR l.lines != l.keys OR p.usage_rows != l.usage_rows
       OR p.usage_qty != l.qty OR p.usage_fingerprint != l.usage_fingerprint
    GROUP BY scope) AS d
LEFT JOIN (SELECT scope, count() AS periods FROM pass_periods WHERE run_id = {run_id:UUID} AND NOT lost GROUP BY scope) AS n ON d.scope = n.scope
ORDER BY scope
