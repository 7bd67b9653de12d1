package ingest_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ratebatch/ratebatch/agent/wire/broker"
	"github.com/ratebatch/ratebatch/fixtures/kafkatest"
	"github.com/ratebatch/ratebatch/fixtures/simulate"
	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
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
	// Too many virtual CPUs for the column, and one that is late once retention is shorter.
	common := fmt.Sprintf(`"ts": %d, "host": "h", "region_name": "late", "instance_uuid": "11111111-1111-4111-8111-111111111111", "cpu_pct": 1, "memory_actual_bytes": 1, "memory_rss_bytes": null, "memory_usable_bytes": 1`, time.Now().Add(-100*time.Hour).Unix())
	p.produce(&kgo.Record{Topic: p.topics.Instance, Key: []byte("k"), Value: []byte("{" + common + `, "vcpus": 70000}`)})
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
	p.until("all that was refused is listed", func() bool { return p.number("SELECT count() FROM rejected_records FINAL") == 7 })
	p.everything()
	got := p.texts("SELECT DISTINCT concat(topic, ': ', reason) FROM rejected_records FINAL WHERE reason LIKE 'field%'")
	slices.Sort(got)
	want := []string{p.topics.Disk + `: field "region_name": is missing`, p.topics.Instance + `: field "more": is not known`, p.topics.Instance + `: field "vcpus": is more than 65535`}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("reasons %q, want %q", got, want)
	}
	// The views follow a retention that is changed, and are made anew where their
	// text is another version's.
	short := storetest.Forever
	short.Raw = 54 * time.Hour
	keep := func(r store.Retention) {
		if _, err := p.store.Migrate(context.WithoutCancel(t.Context()), store.MigrateOptions{Retention: r, SetRetention: true}); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() { keep(storetest.Forever) })
	keep(short)
	p.exec2("ALTER TABLE instance_late_mv MODIFY COMMENT 'another version'")
	if err := p.store.MigrateKafkaEngine(e.WithFileAccess(t.Context()), engine); err != nil {
		t.Fatal(err)
	}
	if n := p.number("SELECT count() FROM system.tables WHERE database = currentDatabase() AND name LIKE '%\\_mv' AND comment LIKE 'ratebatch %' AND name LIKE '%\\_stats\\_%' OR name = 'instance_late_mv' AND comment = 'another version'"); n != 6 {
		t.Errorf("%d views say that their text is this version's, want those of the consumers and of samples", n)
	}
	own, _, _ := strings.Cut(common, `, "cpu_pct"`)
	p.produce(&kgo.Record{Topic: p.topics.Instance, Key: []byte("k"), Value: []byte("{" + common + "}")},
		&kgo.Record{Topic: p.topics.Port, Key: []byte("k"), Value: []byte("{" + own + `, "port_uuid": "ABCDEF01-2222-4222-8222-222222222222", "network_uuid": "33333333-3333-4333-8333-333333333333", "rx_bytes": 1, "tx_bytes": 2}`)},
		&kgo.Record{Topic: p.topics.Disk, Key: []byte("k"), Value: []byte("{" + own + `, "device": "vda ü", "read_bytes": 1, "write_bytes": 2, "read_requests": 1, "write_requests": 1, "capacity_bytes": 1, "allocation_bytes": 1, "physical_bytes": 1}`)})
	p.until("the late samples are listed", func() bool { return p.number("SELECT count() FROM late_samples WHERE region = 'late'") == 3 })
	if n := p.number("SELECT count() FROM instance_samples WHERE region = 'late'"); n != 0 {
		t.Errorf("%d samples were written where they expire at once", n)
	}
	// Whoever changes to ingest, and reads the topics once more, has each once.
	p.options.Group += "-ingest"
	if result := p.drain(); result.Late != 3 {
		t.Errorf("ingest listed %d late samples of the same topics, want 3", result.Late)
	}
	if n := p.number("SELECT count() FROM late_samples FINAL WHERE region = 'late'"); n != 3 {
		t.Errorf("%d late samples after both listed them, want 3", n)
	}
}
