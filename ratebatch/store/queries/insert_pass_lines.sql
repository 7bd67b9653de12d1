-- name:    insert_pass_lines
-- purpose: What the lines of an attempt amount to per period, read back from the table they were written to.
-- params:  run_id UUID, from, to DateTime('UTC')
-- reads:   rated_lines of the window, only the attempt's
-- why:     keys counts distinct line keys; line_digest is over everything a line says, so that no reader of money takes
--          a line that was changed for the one that was committed.
INSERT INTO pass_lines (run_id, scope, begin, lines, keys, line_digest, qty, total, usage_rows, usage_fingerprint, unpriced, rejected, skipped)
SELECT {run_id:UUID}, scope, begin, count(), uniqExact(key_hash), sum(line_hash), sum(toDecimal256(qty, 18)), sum(toDecimal256(price, 18)),
       countIf(part = 0), sum(usage_hash), countIf(bucket = 'unpriced'), countIf(bucket = 'rejected'), countIf(bucket = 'skipped')
FROM (
    SELECT scope, begin, qty, price, bucket, part, cityHash64(region, metric, resource, attributes, part) AS key_hash,
           cityHash64(region, metric, resource, attributes, part, end, unit, qty, price, rule, bucket) AS line_hash,
           cityHash64(region, metric, resource, attributes, qty) AS usage_hash
    FROM rated_lines
    WHERE run_id = {run_id:UUID} AND begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')})
GROUP BY scope, begin
