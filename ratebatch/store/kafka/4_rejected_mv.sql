-- table:   {{.Kind}}_rejected_mv
-- purpose: Lists what is no record in rejected_records, with its place and the reason.
-- why:     the consumer does not know the topic's id, which tells records of a topic that was made anew from older ones at the
--          same offsets: a digest of the record and of the time that the broker gave it stands in, the same for a repeat.
CREATE MATERIALIZED VIEW IF NOT EXISTS {{.Kind}}_rejected_mv{{.OnCluster}} TO rejected_records AS
{{template "record" .}}
SELECT topic, reinterpretAsUUID(sipHash128(at, key, record)) AS topic_id, partition, offset, key, record, reason FROM checked WHERE reason != ''
