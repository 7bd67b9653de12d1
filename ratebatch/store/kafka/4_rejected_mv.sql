-- table:   {{.Kind}}_rejected_mv
-- purpose: Lists what is no record in rejected_records, with its place and the reason.
CREATE MATERIALIZED VIEW IF NOT EXISTS {{.Kind}}_rejected_mv{{.OnCluster}} TO rejected_records AS
{{template "record" .}}
SELECT topic, partition, offset, key, record, reason FROM checked WHERE reason != ''
