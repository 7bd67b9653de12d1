-- name:    doctor_settings
-- purpose: The settings that money rests on, as statements of this connection have them.
-- reads:   system.settings
SELECT name, value FROM system.settings
WHERE name IN ('async_insert', 'decimal_check_overflow', 'session_timezone', 'compile_expressions', 'distributed_foreground_insert', 'readonly', 'max_memory_usage')
ORDER BY name
