-- name:    export_check
-- purpose: Whether every commit of a window has the lines it says, period by period: what an export looks at that writes nothing.
-- params:  from, to DateTime('UTC'), as_of DateTime64(6, 'UTC'), month Date, closed UInt32
-- reads:   period_commits and rated_lines of the window
-- why:     an export that writes compares while it reads; one that finds its state delivered already would not look at the lines.
SELECT countIf(differs) AS differing, sum(of_lines) AS lines, sum(read_lines) AS lines_read, minIf((c.scope, c.begin), differs) AS first_differing
FROM (
    SELECT c.scope, c.begin, c.of_lines, l.read_lines,
           c.of_lines != l.read_lines OR c.of_digest != l.read_digest OR c.of_total != l.read_total AS differs
    FROM (
        SELECT scope, begin, argMax(if(kind = 'rated', key, toUInt128(0)), rank) AS of_key, argMax(if(kind = 'rated', lines, 0), rank) AS of_lines,
               argMax(if(kind = 'rated', line_digest, 0), rank) AS of_digest, argMax(if(kind = 'rated', total, 0), rank) AS of_total
        FROM period_commits
        WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')} AND committed_at <= {as_of:DateTime64(6, 'UTC')}
          AND run_id NOT IN (SELECT run_id FROM void_attempts WHERE voided_at <= {as_of:DateTime64(6, 'UTC')})
          AND ({closed:UInt32} = 0 OR key IN (SELECT key FROM month_commits WHERE month = {month:Date} AND closed = {closed:UInt32} AND kind = 'commit'))
        GROUP BY scope, begin) AS c
    LEFT JOIN (
        SELECT key, count() AS read_lines, sum(toDecimal256(price, 18)) AS read_total,
               sum(cityHash64(l.region, l.metric, l.resource, l.attributes, l.part, l.end, l.unit, l.qty, l.price, l.rule, l.bucket)) AS read_digest
        FROM rated_lines AS l
        WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')}
        GROUP BY key) AS l ON c.of_key = l.key) AS c
