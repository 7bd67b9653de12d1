-- table:   billing_settings
-- purpose: What the bills of this database rest on beside plans and metrics: period, first_period, billing_timezone; the row written last counts.
-- why:     each of them decides what a period costs or which month it is in, so they belong to the data and not to one command line.
CREATE TABLE IF NOT EXISTS {{table "billing_settings"}}
(
    name LowCardinality(String),
    value String,
    reason String,
    author String,
    changed_at DateTime64(6, 'UTC') DEFAULT now64(6)
)
ENGINE = {{engine "MergeTree" ""}}
ORDER BY (name, changed_at)
SETTINGS non_replicated_deduplication_window = 1000
