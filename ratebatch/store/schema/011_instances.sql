-- table:   instances
-- purpose: Who an instance belonged to and what it was, by time: one row per set of attributes with the time it was seen.
CREATE TABLE IF NOT EXISTS {{table "instances"}}
(
    region LowCardinality(String),
    instance_uuid UUID,
    project_id LowCardinality(String),
    user_id LowCardinality(String),
    flavor_name LowCardinality(String),
    vcpus UInt16,
    image_id LowCardinality(String),
    instance_name String,
    seen_from SimpleAggregateFunction(min, DateTime('UTC')),
    seen_to SimpleAggregateFunction(max, DateTime('UTC'))
)
ENGINE = {{engine "AggregatingMergeTree" ""}}
ORDER BY (region, instance_uuid, project_id, user_id, flavor_name, vcpus, image_id, instance_name)
