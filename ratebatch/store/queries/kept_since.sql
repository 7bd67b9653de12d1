-- name:    kept_since
-- purpose: From when on a table keeps rows whole whatever its TTL says; 1970: nothing was noted.
-- params:  table String
-- reads:   kept_since, small
SELECT max(k.since) AS since FROM kept_since AS k WHERE k.tier = {table:String}
