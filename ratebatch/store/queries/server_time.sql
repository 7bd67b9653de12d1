-- name:    server_time
-- purpose: The server's clock.
SELECT now64(6, 'UTC')
