-- table:   {{.Kind}}_late_mv
-- purpose: Lists the records that are right but too old for the tiers in late_samples, as ingest does.
-- why:     a record of the original producer is told from others by its resource, for which the sequence stands in.
CREATE MATERIALIZED VIEW IF NOT EXISTS {{.Kind}}_late_mv{{.OnCluster}} TO late_samples AS
{{template "record" .}}
SELECT '{{.Kind}}' AS kind, region, host, epoch, if(epoch = 0, intDiv(sipHash64({{.Resource}}), 256), sequence) AS sequence, begin, ts, instance_uuid, project_id, record
FROM checked WHERE reason = '' AND late
