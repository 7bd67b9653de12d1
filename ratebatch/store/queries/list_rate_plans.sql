-- name:    list_rate_plans
-- purpose: Every version that was applied, oldest first.
-- reads:   rate_plans, small
SELECT version, digest, body, currency, author, note, valid_from, valid_to, applied_at FROM rate_plans ORDER BY version, applied_at
