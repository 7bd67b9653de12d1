-- table:   kept_since
-- purpose: From when on a table keeps its rows whole although its TTL reaches further back; of several the latest counts.
-- why:     a TTL that is made longer brings nothing back: what had expired before is gone, and an hour without its samples looks
--          like one in which nothing was used. The same where a table of raw samples was made anew after a restore.
CREATE TABLE IF NOT EXISTS {{table "kept_since"}}
(
    tier LowCardinality(String) COMMENT 'the table',
    since DateTime('UTC') COMMENT 'older rows may be gone',
    reason String COMMENT 'what happened to the table',
    noted_at DateTime64(6, 'UTC') DEFAULT now64(6) COMMENT 'when it happened'
)
ENGINE = {{engine "MergeTree" ""}}
ORDER BY (tier, noted_at)
