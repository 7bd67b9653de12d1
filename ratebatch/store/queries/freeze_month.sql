-- name:    freeze_month
-- purpose: Writes down the commits that a month consists of now, under the number of a close that does not count yet.
-- params:  month Date, closed UInt32, from, to DateTime('UTC'), reason, author String
-- reads:   the month's commits
INSERT INTO month_commits (month, closed, kind, scope, begin, key, periods, lines, line_digest, total, currency, reason, author)
SELECT {month:Date}, {closed:UInt32}, 'commit', scope, begin, commit_key, 1, of_lines, digest, of_total, of_currency, {reason:String}, {author:String}
FROM (
    SELECT p.scope AS scope, p.begin AS begin, argMax(p.kind, p.rank) AS kind, argMax(p.key, p.rank) AS commit_key, argMax(p.lines, p.rank) AS of_lines,
           argMax(p.line_digest, p.rank) AS digest, argMax(p.total, p.rank) AS of_total, argMax(toString(p.currency), p.rank) AS of_currency
    FROM period_commits AS p
    WHERE p.begin >= {from:DateTime('UTC')} AND p.begin < {to:DateTime('UTC')} AND p.run_id NOT IN (SELECT run_id FROM void_attempts)
    GROUP BY p.scope, p.begin)
WHERE kind != 'reset'
