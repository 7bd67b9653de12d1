package ingest_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ratebatch/ratebatch/agent/wire/broker"
	"github.com/ratebatch/ratebatch/fixtures/kafkatest"
	"github.com/ratebatch/ratebatch/fixtures/simulate"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// ClickHouse's own consumer fills the same tables with the same values, and
// lists what is no record.
func TestTheKafkaEngineFillsTheSameTables(t *testing.T) {
	p := newPipe(t, 2, kafkatest.Config{Mechanism: broker.Plain})
	e := p.engine
	for _, piece := range pieces(batches(t, cloud(1, simulate.Faults{Duplicates: 10_000})), 2) {
		p.send(piece)
		p.produce(
			&kgo.Record{Topic: p.topics.Port, Key: []byte("k"), Value: []byte("garbage \x00")},
			&kgo.Record{Topic: p.topics.Disk, Key: []byte("k"), Value: []byte(`{"ts": 1, "host": "h"}`)},
			&kgo.Record{Topic: p.topics.Instance, Key: []byte("k"), Value: []byte(fmt.Sprintf(`{"ts": %d, "host": "h", "region_name": "r", "instance_uuid": "11111111-1111-4111-8111-111111111111", "cpu_pct": 1, "memory_actual_bytes": -1, "memory_rss_bytes": null, "memory_usable_bytes": 1, "more": 2}`, time.Now().Unix()))},
		)
	}
	o := p.options.Broker
	engine := store.KafkaEngine{Brokers: o.Brokers, Port: p.topics.Port, Instance: p.topics.Instance, Disk: p.topics.Disk, Group: p.options.Group, Mechanism: broker.Plain, User: o.User, Password: o.Password, Flush: 500 * time.Millisecond}
	if err := p.store.MigrateKafkaEngine(e.WithFileAccess(t.Context()), engine); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// A consumer takes seconds to leave its group.
		var leaving sync.WaitGroup
		for _, kind := range []string{"port", "instance", "disk"} {
			leaving.Go(func() {
				p.exec2("DROP VIEW "+kind+"_stats_queue_mv", "DROP TABLE "+kind+"_stats_queue", "DROP VIEW "+kind+"_stats_mv",
					"DROP VIEW "+kind+"_late_mv", "DROP VIEW "+kind+"_rejected_mv", "DROP TABLE "+kind+"_records")
			})
		}
		leaving.Wait()
	})
	if err := p.store.MigrateKafkaEngine(e.WithFileAccess(t.Context()), engine); err != nil {
		t.Errorf("a second time: %v", err)
	}
	p.until("all samples are there", func() bool { return p.stored() == p.distinct() })
	p.until("all that was refused is listed", func() bool { return p.number("SELECT count() FROM rejected_records FINAL") == 6 })
	p.everything()
	got := p.texts("SELECT DISTINCT concat(topic, ': ', reason) FROM rejected_records FINAL WHERE reason LIKE 'field%'")
	slices.Sort(got)
	want := []string{p.topics.Disk + `: field "region_name": is missing`, p.topics.Instance + `: field "more": is not known`}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("reasons %q, want %q", got, want)
	}
}
