-- name:    web_hosts
-- purpose: Hosts with the moments of their first and newest samples.
-- params:  text String ('' for all), limit, skip UInt32
-- reads:   hosts, small
SELECT region, host, min(h.first_sample) AS first_sample, max(h.last_sample) AS last_sample, count() OVER () AS total
FROM hosts AS h
WHERE {text:String} = '' OR positionCaseInsensitiveUTF8(host, {text:String}) > 0
GROUP BY region, host ORDER BY host = {text:String} DESC, region, host LIMIT {limit:UInt32} OFFSET {skip:UInt32}
