-- name:    server_version
-- purpose: The server's version, as 26.7.2.1.
SELECT version()
