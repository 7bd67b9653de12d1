-- name:    web_scope_check
-- purpose: Whether the lines of one scope in a window are those that its commits state, count and total.
-- params:  scope String, from, to DateTime('UTC'), month Date, closed UInt32 (0 for an open month)
-- reads:   lines and commits of the scope and window
SELECT toBool((SELECT (count(), sum(toDecimal256(price, 18))) FROM rated_lines
        WHERE scope = {scope:String} AND begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')} AND key IN (SELECT argMax(if(c.kind = 'rated', c.key, toUInt128(0)), c.rank) FROM period_commits AS c
    WHERE c.begin >= {from:DateTime('UTC')} AND c.begin < {to:DateTime('UTC')} AND c.scope = {scope:String}
      AND c.run_id NOT IN (SELECT run_id FROM void_attempts)
      AND ({closed:UInt32} = 0 OR c.key IN (SELECT m.key FROM month_commits AS m WHERE m.month = {month:Date} AND m.closed = {closed:UInt32} AND m.kind = 'commit'))
    GROUP BY c.scope, c.begin)) = (SELECT (toUInt64(sum(n)), sum(t)) FROM (
            SELECT argMax(if(c.kind = 'rated', c.lines, 0), c.rank) AS n, argMax(if(c.kind = 'rated', c.total, toDecimal256(0, 18)), c.rank) AS t FROM period_commits AS c
            WHERE c.scope = {scope:String} AND c.begin >= {from:DateTime('UTC')} AND c.begin < {to:DateTime('UTC')}
              AND c.run_id NOT IN (SELECT run_id FROM void_attempts)
              AND ({closed:UInt32} = 0 OR c.key IN (SELECT m.key FROM month_commits AS m WHERE m.month = {month:Date} AND m.closed = {closed:UInt32} AND m.kind = 'commit'))
            GROUP BY c.scope, c.begin))) AS agree
