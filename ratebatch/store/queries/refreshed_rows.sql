-- name:    refreshed_rows
-- purpose: The days that hold tier rows which were refreshed since.
-- params:  since DateTime64(6, 'UTC'), days Array(Date) (where ROWS names them)
-- reads:   for ROWS the refreshed rows of each tier table that a metric reads, by their skip index
SELECT DISTINCT toDate(bucket) AS day FROM (/* ROWS */)
