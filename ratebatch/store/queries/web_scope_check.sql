-- name:    web_scope_check
-- purpose: Whether the lines of a window are those that its commits state, commit by commit, by count and total.
-- params:  scope String ('' for any), from, to DateTime('UTC'), month Date, closed UInt32 (0 for an open month)
-- reads:   two columns of the lines of the scope and window; its commits
-- why:     both sides become a number of commits and a sum of hashes, so a year of many scopes is compared without a list of its
--          periods, and no line too many makes up for one too few of another period.
SELECT toBool((
    SELECT (count(), sum(cityHash64(key, n, t))) FROM (
        SELECT l.key AS key, count() AS n, sum(toDecimal256(l.price, 18)) AS t FROM rated_lines AS l
        WHERE ({scope:String} = '' OR l.scope = {scope:String}) AND l.begin >= {from:DateTime('UTC')} AND l.begin < {to:DateTime('UTC')}
          AND l.key IN (
            SELECT argMax(if(c.kind = 'rated', c.key, toUInt128(0)), c.rank) FROM period_commits AS c
            WHERE ({scope:String} = '' OR c.scope = {scope:String}) AND c.begin >= {from:DateTime('UTC')} AND c.begin < {to:DateTime('UTC')}
              AND c.run_id NOT IN (SELECT run_id FROM void_attempts)
              AND ({closed:UInt32} = 0 OR c.key IN (SELECT m.key FROM month_commits AS m WHERE m.month = {month:Date} AND m.closed = {closed:UInt32} AND m.kind = 'commit'))
            GROUP BY c.scope, c.begin)
        GROUP BY l.key)
    ) = (
    SELECT (count(), sum(cityHash64(key, n, t))) FROM (
        SELECT argMax(if(c.kind = 'rated', c.key, toUInt128(0)), c.rank) AS key, argMax(if(c.kind = 'rated', c.lines, toUInt64(0)), c.rank) AS n,
               argMax(if(c.kind = 'rated', c.total, toDecimal256(0, 18)), c.rank) AS t FROM period_commits AS c
        WHERE ({scope:String} = '' OR c.scope = {scope:String}) AND c.begin >= {from:DateTime('UTC')} AND c.begin < {to:DateTime('UTC')}
          AND c.run_id NOT IN (SELECT run_id FROM void_attempts)
          AND ({closed:UInt32} = 0 OR c.key IN (SELECT m.key FROM month_commits AS m WHERE m.month = {month:Date} AND m.closed = {closed:UInt32} AND m.kind = 'commit'))
        GROUP BY c.scope, c.begin)
    WHERE n > 0)) AS agree
