-- name:    billing_settings
-- purpose: What is set now, one row a setting.
-- reads:   billing_settings, small
SELECT toString(s.name) AS name, argMax(s.value, s.changed_at) AS value, argMax(s.reason, s.changed_at) AS reason, argMax(s.author, s.changed_at) AS author,
       max(s.changed_at) AS changed_at
FROM billing_settings AS s GROUP BY s.name ORDER BY name
