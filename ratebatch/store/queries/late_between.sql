-- name:    late_between
-- purpose: How many late samples have a part in a window.
-- params:  from, to DateTime('UTC')           hours that begin in [from, to)
-- reads:   the time columns of late_samples
SELECT count() FROM late_samples WHERE ts > {from:DateTime('UTC')} AND least(begin, ts - INTERVAL 1 MILLISECOND) < {to:DateTime('UTC')}
