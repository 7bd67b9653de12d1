-- table:   {{.Kind}}_stats_mv
-- purpose: Writes the records that are right, and in time for the tiers, to {{.Kind}}_samples.
CREATE MATERIALIZED VIEW IF NOT EXISTS {{.Kind}}_stats_mv{{.OnCluster}} TO {{.Kind}}_samples AS
{{template "record" .}}
SELECT region, host, epoch, sequence, begin, ts, instance_uuid, project_id, user_id, flavor_name, vcpus, image_id, instance_name, domain_id, agent_version, {{.Columns}}
FROM (SELECT *, {{.Own}} FROM checked WHERE reason = '' AND NOT late)
