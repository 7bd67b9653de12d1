-- name:    truncate_rated_lines
-- purpose: Empties the lines of a database that benchmarks made for themselves.
TRUNCATE TABLE rated_lines
