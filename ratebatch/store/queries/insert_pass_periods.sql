-- name:    insert_pass_periods
-- purpose: The periods of [from, to) that an attempt rates, with the usage found for each before a line is written.
-- params:  run_id UUID (of the attempt), from, to DateTime('UTC'), period UInt32, closed Array(Date), metrics_digest String
-- reads:   due_periods, usage of the window; the text of package metric stands for USAGE and the scopes with their windows
--          [first, until), as a constant, for SCOPES
INSERT INTO pass_periods (run_id, scope, begin, end, revision, usage_rows, usage_fingerprint, usage_qty, usage_keys, committed_rows, lost, read_at)
SELECT {run_id:UUID}, d.scope, d.begin, d.begin + {period:UInt32}, d.revision, u.usage_rows, u.usage_fingerprint, u.usage_qty, u.usage_keys,
       d.committed_rows, u.usage_rows < d.committed_rows, now64(6)
FROM (/* query due_periods */) AS d
LEFT JOIN (
    SELECT scope, begin, count() AS usage_rows, sum(usage_hash) AS usage_fingerprint, sum(toDecimal256(qty, 18)) AS usage_qty,
           uniqExact(key_hash) AS usage_keys
    FROM (
        SELECT scope, begin, qty, cityHash64(region, metric, resource, attributes) AS key_hash,
               cityHash64(region, metric, resource, attributes, qty) AS usage_hash
        FROM (/* USAGE */))
    GROUP BY scope, begin) AS u ON d.scope = u.scope AND d.begin = u.begin
