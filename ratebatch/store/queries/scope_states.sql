-- name:    scope_states
-- purpose: The scopes that someone enabled, disabled or fetched; the row written last counts.
-- reads:   scopes, small
SELECT s.scope, argMax(s.active, s.changed_at) AS active, argMax(s.name, s.changed_at) AS name, argMax(s.domain, s.changed_at) AS domain,
       argMax(s.fetcher, s.changed_at) AS fetcher, argMax(s.reason, s.changed_at) AS reason, max(s.changed_at) AS changed_at
FROM scopes AS s GROUP BY s.scope ORDER BY s.scope
