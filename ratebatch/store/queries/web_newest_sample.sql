-- name:    web_newest_sample
-- purpose: When the newest sample of any host ended; 1970 if there is none.
-- reads:   hosts, small
SELECT max(h.last_sample) AS newest FROM hosts AS h
