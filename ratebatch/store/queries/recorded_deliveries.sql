-- name:    recorded_deliveries
-- purpose: The deliveries of a dataset and month at a place, in the order in which they became the current one.
-- params:  location, dataset String, month Date
-- reads:   exports by (location, dataset)
-- why:     a state that comes back is the current delivery again, under the same name.
SELECT x.delivery AS delivery, max(x.exported_at) AS latest
FROM exports AS x WHERE x.location = {location:String} AND x.dataset = {dataset:String} AND x.month = {month:Date}
GROUP BY delivery ORDER BY latest, delivery
