-- name:    plain_now
-- purpose: The months of which every rated line counts and is noted to.
-- reads:   plain_months; one narrow column of commits and lines
SELECT n.month AS month FROM plain_now AS n ORDER BY month
