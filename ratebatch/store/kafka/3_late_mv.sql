-- table:   {{.Kind}}_late_mv
-- purpose: Lists the records that are right but too old for the tiers in late_samples, as ingest does.
-- why:     a record of the original producer is told from others by its resource, for which the sequence stands in: the first
--          seven bytes of its SHA-256, as in ingest, so that a record that both listed is one.
CREATE MATERIALIZED VIEW IF NOT EXISTS {{.Kind}}_late_mv{{.OnCluster}} TO late_samples AS
{{template "record" .}}
SELECT '{{.Kind}}' AS kind, region, host, epoch, if(epoch = 0, reinterpretAsUInt64(reverse(substring(SHA256({{.Resource}}), 1, 7))), sequence) AS sequence, begin, ts, instance_uuid, project_id, record
FROM checked WHERE reason = '' AND late
