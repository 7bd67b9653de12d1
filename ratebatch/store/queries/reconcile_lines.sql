-- name:    reconcile_lines
-- purpose: The commits of a window beside the lines that count, period by period, summed up: what differs and what lies in buckets.
-- params:  from, to DateTime('UTC'), as_of DateTime64(6, 'UTC'), month Date, closed UInt32
-- reads:   period_commits and rated_lines of the window
-- why:     differ counts periods whose line count, key digest, total or usage rows are not those of their lines, so two
--          mistakes cannot cancel each other.
SELECT toUInt64(count()) AS periods, sum(c.usage_rows) AS usage_rows, sum(l.usage_rows) AS usage_rows_in_lines, sum(c.lines) AS lines, sum(l.lines) AS lines_read,
       sum(c.total) AS total, sum(l.total) AS total_read, sum(l.qty) AS quantity,
       countIf(c.lines != l.lines OR c.line_digest != l.line_digest OR c.total != l.total OR c.usage_rows != l.usage_rows) AS differ,
       sum(l.unpriced) AS unpriced, sum(l.rejected) AS rejected, sum(l.skipped) AS skipped,
       minIf((c.scope, c.begin), c.lines != l.lines OR c.line_digest != l.line_digest OR c.total != l.total OR c.usage_rows != l.usage_rows) AS first_differing
FROM (
    SELECT scope, begin, argMax(if(kind = 'rated', key, toUInt128(0)), rank) AS of_key, argMax(if(kind = 'rated', usage_rows, 0), rank) AS usage_rows,
           argMax(if(kind = 'rated', lines, 0), rank) AS lines, argMax(if(kind = 'rated', line_digest, 0), rank) AS line_digest,
           argMax(if(kind = 'rated', total, 0), rank) AS total
    FROM period_commits
    WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')} AND committed_at <= {as_of:DateTime64(6, 'UTC')}
      AND run_id NOT IN (SELECT run_id FROM void_attempts WHERE voided_at <= {as_of:DateTime64(6, 'UTC')})
      AND ({closed:UInt32} = 0 OR key IN (SELECT key FROM month_commits WHERE month = {month:Date} AND closed = {closed:UInt32} AND kind = 'commit'))
    GROUP BY scope, begin) AS c
LEFT JOIN (
    SELECT key, count() AS lines, sum(cityHash64(l.region, l.metric, l.resource, l.attributes, l.part, l.end, l.unit, l.qty, l.price, l.rule, l.bucket)) AS line_digest, sum(toDecimal256(price, 18)) AS total,
           sumIf(toDecimal256(qty, 18), part < 60000) AS qty, countIf(part = 0) AS usage_rows,
           countIf(bucket = 'unpriced') AS unpriced, countIf(bucket = 'rejected') AS rejected, countIf(bucket = 'skipped') AS skipped
    FROM rated_lines AS l
    WHERE begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')}
    GROUP BY key) AS l ON c.of_key = l.key
