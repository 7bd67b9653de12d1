-- table:   reprocess_schedules
-- purpose: Requests to rate periods again, and how far they are; the row written last per id counts.
CREATE TABLE IF NOT EXISTS {{table "reprocess_schedules"}}
(
    id UUID,
    scopes Array(String) COMMENT 'empty: all',
    begin DateTime('UTC'),
    end DateTime('UTC'),
    state Enum8('pending' = 1, 'running' = 2, 'done' = 3, 'cancelled' = 4, 'failed' = 5),
    done_until DateTime('UTC'),
    reason String,
    author String,
    error String,
    changed_at DateTime64(6, 'UTC') DEFAULT now64(6)
)
ENGINE = {{engine "MergeTree" ""}}
ORDER BY (id, changed_at)
SETTINGS non_replicated_deduplication_window = 1000
