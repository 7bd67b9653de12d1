-- name:    due_scope_count
-- purpose: How many scopes have periods in their windows that have no rated current commit, or one older than asked for.
-- params:  period UInt32 (seconds), from, to DateTime('UTC') (bounds of the windows)
-- reads:   the scopes with their windows, which the caller writes as a constant; the commits of [from, to)
-- why:     for people: a window is where periods can be due, and most scopes of most runs have none in it.
SELECT countIf(n.expected > n.rated) AS scopes FROM (
    SELECT m.scope AS scope, sum(m.expected) AS expected, sum(m.rated) AS rated FROM (
        SELECT scope, intDiv(toUnixTimestamp(until) - toUnixTimestamp(first), {period:UInt32}) AS expected, 0 AS rated FROM (/* SCOPES */)
        UNION ALL
        SELECT s.scope, 0, count() FROM (
            SELECT p.scope AS scope, p.begin AS begin, argMax(p.kind, p.rank) AS kind, argMax(toUnixTimestamp64Micro(p.committed_at), p.rank) AS committed
            FROM period_commits AS p
            WHERE p.begin >= {from:DateTime('UTC')} AND p.begin < {to:DateTime('UTC')} AND p.run_id NOT IN (SELECT run_id FROM void_attempts)
            GROUP BY p.scope, p.begin) AS s
        INNER JOIN (SELECT scope, first, until, again FROM (/* SCOPES */)) AS w ON s.scope = w.scope
        WHERE s.begin >= w.first AND s.begin < w.until AND (toUnixTimestamp(s.begin) - toUnixTimestamp(w.first)) % {period:UInt32} = 0
          AND s.kind = 'rated' AND s.committed >= w.again
        GROUP BY s.scope) AS m
    GROUP BY m.scope) AS n
