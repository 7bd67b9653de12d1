-- name:    insert_pass_lines_tiers
-- purpose: insert_pass_lines for an attempt with tiers, discounts or charges: lines of one usage row are added up before they are compared.
-- params:  run_id UUID, from, to DateTime('UTC')
-- reads:   rated_lines of the window, only the attempt's, and the few keys of rows that were cut
-- why:     the fingerprint is over usage rows, so a row's parts must add up to it row by row. Parts from 60000 on come from other
--          lines and are no usage; they count in lines, digest and total.
INSERT INTO pass_lines (run_id, scope, begin, lines, keys, line_digest, qty, total, usage_rows, usage_fingerprint, unpriced, rejected, skipped)
WITH cut AS (
    SELECT cityHash64(scope, begin, region, metric, resource, attributes) FROM rated_lines
    WHERE run_id = {run_id:UUID} AND begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')} AND part BETWEEN 1 AND 59999)
SELECT {run_id:UUID}, scope, begin, sum(n), sum(n_keys), sum(digest), sum(of_qty), sum(of_total), sum(of_rows), sum(fingerprint), sum(n_unpriced), sum(n_rejected), sum(n_skipped)
FROM (
    SELECT scope, begin, count() AS n, uniqExact(key_hash) AS n_keys, sum(line_hash) AS digest, sumIf(toDecimal256(qty, 18), part < 60000) AS of_qty,
           sum(toDecimal256(price, 18)) AS of_total, countIf(part = 0) AS of_rows, sumIf(usage_hash, part = 0 AND row_hash NOT IN (cut)) AS fingerprint,
           countIf(bucket = 'unpriced') AS n_unpriced, countIf(bucket = 'rejected') AS n_rejected, countIf(bucket = 'skipped') AS n_skipped
    FROM (
        SELECT scope, begin, qty, price, bucket, part, cityHash64(region, metric, resource, attributes, part) AS key_hash,
               cityHash64(region, metric, resource, attributes, part, end, unit, qty, price, rule, bucket) AS line_hash,
               cityHash64(region, metric, resource, attributes, qty) AS usage_hash, cityHash64(scope, begin, region, metric, resource, attributes) AS row_hash
        FROM rated_lines
        WHERE run_id = {run_id:UUID} AND begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')})
    GROUP BY scope, begin
    UNION ALL
    SELECT scope, begin, 0, 0, 0, toDecimal256(0, 18), toDecimal256(0, 18), 0, sum(usage_hash), 0, 0, 0
    FROM (
        SELECT scope, begin, cityHash64(region, metric, resource, attributes, sum(qty)) AS usage_hash
        FROM rated_lines
        WHERE run_id = {run_id:UUID} AND begin >= {from:DateTime('UTC')} AND begin < {to:DateTime('UTC')} AND part < 60000
          AND cityHash64(scope, begin, region, metric, resource, attributes) IN (cut)
        GROUP BY scope, begin, region, metric, resource, attributes)
    GROUP BY scope, begin)
GROUP BY scope, begin
