-- name:    late_prices
-- purpose: What the periods of a look would cost now.
-- params:  run_id UUID (of the attempt that priced them)
-- reads:   pass_lines of the attempt
SELECT scope, begin, total FROM pass_lines WHERE run_id = {run_id:UUID}
