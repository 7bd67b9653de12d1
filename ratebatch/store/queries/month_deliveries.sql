-- name:    month_deliveries
-- purpose: Of which moment the newest delivery of each dataset and month at each place is.
-- reads:   exports, small
-- why:     exported_at is the moment whose commits and closes a delivery shows, not the one at which it was written.
SELECT x.location AS location, x.dataset AS dataset, x.month AS month, max(x.exported_at) AS latest
FROM exports AS x
GROUP BY location, dataset, month ORDER BY location, dataset, month
