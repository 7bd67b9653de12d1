-- table:   {{.Kind}}_stats_queue_mv
-- purpose: Starts the consumer: hands every message on, the broken ones with what is wrong.
CREATE MATERIALIZED VIEW IF NOT EXISTS {{.Kind}}_stats_queue_mv{{.OnCluster}} TO {{.Kind}}_records AS
SELECT if(_error = '', record, _raw_message) AS record, _error AS broken, toString(_topic) AS topic, toInt32(_partition) AS partition, toInt64(_offset) AS offset, _key AS key,
       toUnixTimestamp64Milli(ifNull(_timestamp_ms, toDateTime64(0, 3))) AS at
FROM {{.Kind}}_stats_queue
