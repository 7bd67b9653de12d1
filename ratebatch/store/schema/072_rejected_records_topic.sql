-- table:   rejected_records
-- purpose: Which topic a record stood in, by its id: one that is deleted and made anew under its name has other records at
--          the same offsets, and by the name alone they would take the place of the older ones.
-- why:     what ClickHouse's own consumer writes has a digest of the record and its time in place of the id, which that
--          consumer does not know; rows from before have none (all zero). The primary key stays (topic, partition, offset).
ALTER TABLE {{table "rejected_records"}} ADD COLUMN IF NOT EXISTS topic_id UUID AFTER topic, MODIFY ORDER BY (topic, partition, offset, topic_id)
