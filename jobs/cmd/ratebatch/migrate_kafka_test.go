package main

import (
	"strings"
	"testing"
)

// What migrate --kafka-engine would do can be read beforehand, without the
// password, with the consumers' views last.
func TestTheKafkaEnginesStatementsArePrintedWithoutThePassword(t *testing.T) {
	const secret = "kafka-secret"
	t.Setenv("RATEBATCH_KAFKA_PASSWORD", secret)
	out := must(t, "migrate", "--kafka-engine", "--print", "single", "--kafka", "broker1:9092,broker2:9092", "--kafka-user", "reader")
	if strings.Contains(out, secret) {
		t.Error("the password is shown")
	}
	for _, want := range []string{"kafka_broker_list = 'broker1:9092,broker2:9092'", "kafka_sasl_mechanism = 'SCRAM-SHA-256'", "kafka_sasl_username = 'reader'", "kafka_handle_error_mode = 'stream'",
		"kafka_topic_list = 'port-stats'", "kafka_topic_list = 'instance-stats'", "kafka_topic_list = 'disk-stats'", "TO rejected_records", "TO late_samples", "TO disk_samples"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not printed", want)
		}
	}
	if first, last := strings.Index(out, "_stats_queue_mv"), strings.LastIndex(out, "TO rejected_records"); first < last {
		t.Error("a consumer starts before all views are there")
	}
	if code, _, _ := cli(t, "migrate", "--kafka-engine", "--print", "single"); code != 2 {
		t.Errorf("without brokers: exit %d, want 2", code)
	}
}
