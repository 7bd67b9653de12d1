-- name:    last_export
-- purpose: The manifest's checksum of the newest delivery of a month that is on record for a place and a dataset; empty if there is none.
-- params:  location, dataset String, month Date
-- reads:   exports by (location, dataset)
SELECT argMax(manifest_sha256, exported_at) AS manifest
FROM exports WHERE location = {location:String} AND dataset = {dataset:String} AND month = {month:Date}
