-- name:    fingerprint
-- purpose: What one metric's usage amounts to per scope and period: rows, distinct keys, fingerprint, sum.
-- params:  from DateTime('UTC'), to DateTime('UTC')    [from, to), both on a period's boundary
-- reads:   usage.sql
-- why:     usage_keys must equal usage_rows: that is the proof that deduplication left no repeat. The fingerprint is a
--          wrapping sum, because equal rows would cancel in an XOR.
SELECT scope, begin, count() AS usage_rows, uniqExact(usage_key) AS usage_keys, sum(usage_hash) AS usage_fingerprint,
       sum(toDecimal256(qty, 18)) AS usage_qty
FROM ({{template "usage" .}})
GROUP BY scope, begin
