-- name:    ingest_leftovers
-- purpose: How many records were rejected and how many samples came too late for the raw tier, since a moment.
-- params:  since DateTime('UTC')
-- reads:   rejected_records and late_samples; both are small unless something is very wrong
SELECT (SELECT count() FROM rejected_records FINAL WHERE ingested_at >= {since:DateTime('UTC')}) AS rejected,
       (SELECT count() FROM late_samples FINAL WHERE ingested_at >= {since:DateTime('UTC')}) AS late
