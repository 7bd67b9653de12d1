-- name:    ranges_since
-- purpose: From when on arrivals are not in ingest_ranges yet: the last count, or the beginning where no range was ever noted.
-- params:  since DateTime('UTC')          the last count, less some minutes
-- reads:   ingest_ranges, whether it has a row
SELECT if((SELECT count() FROM (SELECT 1 FROM ingest_ranges LIMIT 1)) = 0, toDateTime(0, 'UTC'), {since:DateTime('UTC')})
