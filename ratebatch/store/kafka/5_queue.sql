-- table:   {{.Kind}}_stats_queue
-- purpose: ClickHouse's own consumer of the {{.Kind}} records: the record as it is, so that one that is refused can be kept.
-- why:     with handle_error_mode 'stream' a message that is no JSON object comes with _error and _raw_message instead of
--          stopping the consumer.
CREATE TABLE IF NOT EXISTS {{.Kind}}_stats_queue{{.OnCluster}} (record String)
ENGINE = Kafka
SETTINGS kafka_broker_list = {{quote .Brokers}}, kafka_topic_list = {{quote .Topic}}, kafka_group_name = {{quote .Group}}, kafka_format = 'JSONAsString',
         kafka_num_consumers = {{.Consumers}}, kafka_handle_error_mode = 'stream', kafka_commit_on_select = 0{{range .Security}}, {{.Name}} = {{quote .Value}}{{end}}
