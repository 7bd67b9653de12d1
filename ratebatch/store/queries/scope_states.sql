-- name:    scope_states
-- purpose: The scopes that someone enabled, disabled or fetched; the row written last counts.
-- reads:   scopes, small
SELECT scope, argMax(active, changed_at) AS active, argMax(name, changed_at) AS name, argMax(domain, changed_at) AS domain,
       argMax(fetcher, changed_at) AS fetcher, argMax(reason, changed_at) AS reason, max(changed_at) AS changed_at
FROM scopes GROUP BY scope ORDER BY scope
