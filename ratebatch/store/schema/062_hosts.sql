-- table:   hosts
-- purpose: When each host's newest sample ended and arrived. A host that falls silent is found here.
CREATE TABLE IF NOT EXISTS {{table "hosts"}}
(
    region LowCardinality(String),
    host LowCardinality(String),
    first_sample SimpleAggregateFunction(min, DateTime('UTC')),
    last_sample SimpleAggregateFunction(max, DateTime('UTC')),
    last_arrival SimpleAggregateFunction(max, DateTime('UTC'))
)
ENGINE = {{engine "AggregatingMergeTree" ""}}
ORDER BY (region, host)
