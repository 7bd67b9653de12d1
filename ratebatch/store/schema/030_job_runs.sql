-- table:   job_runs
-- purpose: The run log: one row when a run starts and one when it ends; status reads it.
CREATE TABLE IF NOT EXISTS {{table "job_runs"}}
(
    run_id UUID,
    job LowCardinality(String),
    state Enum8('running' = 1, 'done' = 2, 'failed' = 3),
    host LowCardinality(String),
    pid UInt32,
    arguments Array(String),
    version LowCardinality(String),
    counts Map(LowCardinality(String), String),
    error String,
    hint String,
    started_at DateTime64(6, 'UTC'),
    written_at DateTime64(6, 'UTC') DEFAULT now64(6)
)
ENGINE = {{engine "MergeTree" ""}}
ORDER BY (job, started_at, run_id, state)
SETTINGS non_replicated_deduplication_window = 1000
