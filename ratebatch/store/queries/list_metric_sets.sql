-- name:    list_metric_sets
-- purpose: Every version that was applied, oldest first.
-- reads:   metric_sets, small
SELECT version, digest, body, currency, author, note, valid_from, valid_to, applied_at FROM metric_sets ORDER BY version, applied_at
