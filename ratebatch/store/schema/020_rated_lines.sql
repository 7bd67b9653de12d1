-- table:   rated_lines
-- purpose: Every priced line of every attempt. A line counts only if its key is that of its period's current commit.
-- why:     ORDER BY (scope, begin, …) with monthly partitions: totals, one scope and exports all read few granules.
--          key repeats (scope, begin, run_id) as one 128-bit number so that reading through commits is one set lookup.
--          attributes are written with their names sorted, so that hashes of equal lines are equal.
--          bucket is empty for an ordinary line; usage that was not priced has a row too, with price 0, in a bucket
--          named unpriced, rejected or skipped, and the reason in rule: no usage row ever vanishes.
--          part numbers the lines of one usage row that was split, from 0.
CREATE TABLE IF NOT EXISTS {{table "rated_lines"}}
(
    run_id UUID,
    region LowCardinality(String),
    scope LowCardinality(String),
    begin DateTime('UTC'),
    end DateTime('UTC'),
    metric LowCardinality(String),
    resource String,
    attributes Map(LowCardinality(String), String),
    unit LowCardinality(String),
    qty Decimal(38, 18),
    price Decimal(38, 18),
    rule LowCardinality(String),
    bucket LowCardinality(String),
    part UInt16,
    revision UInt32,
    key UInt128 DEFAULT reinterpretAsUInt128(sipHash128(scope, begin, run_id))
)
ENGINE = {{engine "MergeTree" ""}}
PARTITION BY toYYYYMM(begin)
ORDER BY (scope, begin, metric, resource)
SETTINGS non_replicated_deduplication_window = 1000
