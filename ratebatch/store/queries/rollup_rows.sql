-- name:    rollup_rows
-- purpose: How many rows a tier holds for a window.
-- params:  tier Identifier, from, to DateTime('UTC')    buckets that begin in [from, to)
SELECT count() FROM {tier:Identifier} FINAL WHERE bucket >= {from:DateTime('UTC')} AND bucket < {to:DateTime('UTC')}
