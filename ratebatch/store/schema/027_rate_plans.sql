-- table:   rate_plans
-- purpose: Every version of rate plans that was applied: immutable, in force for periods that begin in [valid_from, valid_to).
-- why:     of versions that overlap the one applied last counts, so a later version takes over from its valid_from on.
CREATE TABLE IF NOT EXISTS {{table "rate_plans"}}
(
    version UInt32,
    digest String COMMENT 'sha256 of the canonical form, hexadecimal',
    body String COMMENT 'the file as it was applied',
    currency LowCardinality(String),
    author String,
    note String,
    valid_from DateTime('UTC'),
    valid_to DateTime('UTC') COMMENT '2106-02-07 when open',
    applied_at DateTime64(6, 'UTC') DEFAULT now64(6)
)
ENGINE = {{engine "MergeTree" ""}}
ORDER BY version
SETTINGS non_replicated_deduplication_window = 1000
