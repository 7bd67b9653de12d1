-- table:   reprocess_schedules
-- purpose: Requests to rate periods again, and how far they are; the row written last per id counts.
-- why:     a period is done for a schedule when its current commit was made after started_at, so a run that was killed
--          goes on where it was, and two runs at once do not rate a period twice.
CREATE TABLE IF NOT EXISTS {{table "reprocess_schedules"}}
(
    id UUID,
    scopes Array(String) COMMENT 'empty: all that are active when it runs',
    begin DateTime('UTC'),
    end DateTime('UTC'),
    state Enum8('pending' = 1, 'running' = 2, 'done' = 3, 'cancelled' = 4, 'failed' = 5),
    started_at DateTime64(6, 'UTC') COMMENT '1970 before its first run',
    done_until DateTime('UTC'),
    waiting String COMMENT 'why a part of it waits',
    reason String,
    author String,
    error String,
    created_at DateTime64(6, 'UTC'),
    changed_at DateTime64(6, 'UTC') DEFAULT now64(6)
)
ENGINE = {{engine "MergeTree" ""}}
ORDER BY (id, changed_at)
SETTINGS non_replicated_deduplication_window = 1000
