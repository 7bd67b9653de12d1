package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/agent"
	"github.com/ratebatch/ratebatch/agent/clock"
	"github.com/ratebatch/ratebatch/agent/kafka"
	"github.com/ratebatch/ratebatch/agent/libvirt"
	"github.com/ratebatch/ratebatch/agent/spool"
	"github.com/ratebatch/ratebatch/fixtures/kafkatest"
	"github.com/ratebatch/ratebatch/fixtures/libvirtpeer"
	"github.com/ratebatch/ratebatch/ratebatch/engine"
	"github.com/ratebatch/ratebatch/ratebatch/engine/enginetest"
)

// hourAgo is libvirt at another time: what it says is real, when is the test's.
type hourAgo struct {
	*libvirt.Host
	now func() clock.Moment
}

func (h hourAgo) Poll(ctx context.Context) (*libvirt.Snapshot, error) {
	s, err := h.Host.Poll(ctx)
	if err == nil {
		m := h.now()
		s.At, s.Mono = m.Wall, m.Since
	}
	return s, err
}

// The whole way: domains, libvirt's protocol, the agent with its spool, Kafka's
// protocol, ingest, the tiers, rate. An hour of four instances, during which the
// broker is away for ten minutes and the agent is restarted, and one instance
// runs from half past. What each project owes is known beforehand.
func TestFromDomainsToPrices(t *testing.T) {
	const hour = 3600
	begin := time.Now().UTC().Add(-4 * time.Hour).Truncate(time.Hour)
	moment := clock.Moment{Wall: begin.Add(-time.Minute), BootID: "11111111-1111-4111-8111-111111111111", Since: time.Hour}
	now := func() clock.Moment { return moment }
	peer, err := libvirtpeer.Start(libvirtpeer.Options{Domains: 3})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { peer.Close() })
	broker := kafkatest.Start(t, kafkatest.Config{Keep: true})
	topics := broker.Topics(t, 3)
	source := libvirt.New(libvirt.Options{URI: peer.URI()})
	t.Cleanup(func() { source.Close() })
	log := slog.New(slog.DiscardHandler)
	dir := t.TempDir()
	var host *agent.Host
	var publisher *agent.Publisher
	stop := func() {}
	start := func() {
		s, state, err := spool.Open(t.Context(), spool.Options{Dir: dir, Clock: now, Log: log})
		if err != nil {
			t.Fatal(err)
		}
		producer, err := kafka.New(kafka.Options{Broker: broker.Options, Topics: topics, Timeout: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		publisher = agent.NewPublisher(agent.PublisherOptions{Spools: []*spool.Spool{s}, Producer: producer, Clock: now, Log: log})
		host, err = agent.NewHost(agent.HostOptions{Name: "compute-1", Region: "RegionOne", Local: true, Source: hourAgo{source, now}, Ports: agent.InterfaceIDs{},
			Spool: s, State: state, Interval: time.Minute, Hold: time.Hour, Version: "test", Clock: now, Log: log})
		if err != nil {
			t.Fatal(err)
		}
		stop = func() { producer.Close(); s.Close() }
	}
	start()
	defer func() { stop() }()
	away := false
	for minute := -1; minute <= 62; minute++ {
		if err := host.Poll(t.Context()); err != nil {
			t.Fatal(err)
		}
		switch {
		case minute == 20 && !broker.Outside:
			broker.Pause()
			away = true
			if err := publisher.Drain(t.Context()); err == nil {
				t.Error("records were delivered to a broker that is away")
			}
		case minute == 25: // killed: nothing is told to it
			stop()
			start()
		case minute == 30:
			late := libvirtpeer.Make(3)
			late.CPUNS, late.NICs[0].Rx, late.NICs[0].Tx = 0, 0, 0
			for i := range late.Disks {
				d := &late.Disks[i]
				d.ReadBytes, d.WriteBytes, d.ReadRequests, d.WriteRequests = 0, 0, 0, 0
			}
			peer.StartDomain(late)
			if away {
				broker.Resume(t)
				away = false
			}
		}
		if !away {
			if err := publisher.Drain(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		peer.Advance(time.Minute)
		moment = clock.Moment{Wall: moment.Wall.Add(time.Minute), BootID: moment.BootID, Since: moment.Since + time.Minute}
	}

	o := enginetest.Options(t)
	flags := []string{"--data", o.DataDir, "--database", o.Database}
	must(t, append(flags, "migrate")...)
	o.Create = true
	e, err := engine.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	kafkaFlags := []string{"--kafka", strings.Join(broker.Options.Brokers, ","), "--port-topic", topics.Port, "--instance-topic", topics.Instance, "--disk-topic", topics.Disk}
	must(t, append(append(flags, "ingest"), kafkaFlags...)...)
	must(t, append(flags, "rollup", "--from", begin.Add(-time.Hour).Format(time.RFC3339))...)
	plan := filepath.Join(t.TempDir(), "plan.yaml")
	text := `
currency: EUR
services:
  - name: instance
    fields:
      - {name: flavor_name, mappings: [{value: m1.lab2, type: flat, cost: "1"}]}
  - name: disk.io.requests
    mappings: [{type: flat, cost: "0.001"}]
`
	if err := os.WriteFile(plan, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, append(flags, "plan", "apply", plan, "--from", "2020-01-01T00:00:00Z")...)
	must(t, append(flags, "rate", "--first-period", "usage")...)

	query := func(sql string) string {
		t.Helper()
		var out string
		if err := e.Conn().QueryRow(t.Context(), sql).Scan(&out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	at := fmt.Sprintf("toDateTime('%s', 'UTC')", begin.Format(time.DateTime))
	// 3,000 bytes a second came in, on one port each; the last one's for half an hour.
	got := query("SELECT toString(groupArray((covered, rx))) FROM (SELECT toString(sum(covered_seconds)) AS covered, sum(rx_bytes) AS rx FROM port_volume_hourly FINAL WHERE bucket = " + at + " GROUP BY port_uuid ORDER BY port_uuid)")
	if want := fmt.Sprintf("[('%d',%d),('%d',%d),('%d',%d),('%d',%d)]", hour, 3000*hour, hour, 3000*hour, hour, 3000*hour, hour/2, 3000*hour/2); got != want {
		t.Errorf("traffic of the hour\n%s, want\n%s", got, want)
	}
	// An instance hour costs 1; two disks do three requests a second each: 21,600 an
	// hour at 0.001.
	got = query("SELECT toString(groupArray((scope, total))) FROM (SELECT scope, toString(sum(price)) AS total FROM rated WHERE begin = " + at + " GROUP BY scope ORDER BY scope)")
	if want := "[('7f000000000040008000000000000001','22.6'),('7f000000000040008000000000000002','22.6'),('7f000000000040008000000000000003','22.6'),('7f000000000040008000000000000004','11.3')]"; got != want {
		t.Errorf("the projects owe\n%s, want\n%s", got, want)
	}
}
