-- name:    line_totals
-- purpose: What the lines of a window's current commits amount to, read from the lines themselves.
-- params:  from, to DateTime('UTC')
-- reads:   rated_lines of the window, through the window's commits
-- why:     a close compares it with current_totals and stops on any difference (ARCHITECTURE.md, Exactly once). The hash is that of
--          insert_pass_lines.
SELECT count() AS lines, sum(cityHash64(l.region, l.metric, l.resource, l.attributes, l.part, l.end, l.unit, l.qty, l.price, l.rule, l.bucket)) AS line_digest, sum(toDecimal256(l.price, 18)) AS total
FROM rated_lines AS l
WHERE l.begin >= {from:DateTime('UTC')} AND l.begin < {to:DateTime('UTC')} AND l.key IN (
    SELECT argMax(if(p.kind = 'rated', p.key, toUInt128(0)), p.rank) FROM period_commits AS p
    WHERE p.begin >= {from:DateTime('UTC')} AND p.begin < {to:DateTime('UTC')} AND p.run_id NOT IN (SELECT run_id FROM void_attempts)
    GROUP BY p.scope, p.begin)
