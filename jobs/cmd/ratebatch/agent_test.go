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

	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/agent"
	"github.com/ratebatch/ratebatch/agent/clock"
	"github.com/ratebatch/ratebatch/agent/kafka"
	"github.com/ratebatch/ratebatch/agent/libvirt"
	"github.com/ratebatch/ratebatch/agent/ovn"
	"github.com/ratebatch/ratebatch/agent/spool"
	"github.com/ratebatch/ratebatch/agent/wire"
	"github.com/ratebatch/ratebatch/fixtures/kafkatest"
	"github.com/ratebatch/ratebatch/fixtures/lab"
	"github.com/ratebatch/ratebatch/fixtures/libvirtpeer"
	"github.com/ratebatch/ratebatch/ratebatch/engine"
	"github.com/ratebatch/ratebatch/ratebatch/engine/enginetest"
)

// shifted is libvirt at another time: what it says is real, when is the test's.
type shifted struct {
	*libvirt.Host
	now  func() clock.Moment
	last *libvirt.Snapshot
}

func (h *shifted) Poll(ctx context.Context) (*libvirt.Snapshot, error) {
	s, err := h.Host.Poll(ctx)
	if err == nil {
		m := h.now()
		s.At, s.Mono = m.Wall, m.Since
		h.last = s
	}
	return s, err
}

// node is an agent and its way to Kafka, at a time of the test's.
type node struct {
	t      *testing.T
	begin  time.Time // of the hour that is rated
	moment clock.Moment
	source *shifted
	ports  agent.Ports
	broker *kafkatest.Broker
	topics wire.Topics
	dir    string

	host      *agent.Host
	publisher *agent.Publisher
	stop      func()
}

// newNode starts an agent a minute before the hour that began four hours ago.
func newNode(t *testing.T, uri string, ports agent.Ports) *node {
	n := &node{t: t, begin: time.Now().UTC().Add(-4 * time.Hour).Truncate(time.Hour), ports: ports, dir: t.TempDir()}
	n.moment = clock.Moment{Wall: n.begin.Add(-time.Minute), BootID: "11111111-1111-4111-8111-111111111111", Since: time.Hour}
	n.source = &shifted{Host: libvirt.New(libvirt.Options{URI: uri}), now: n.now}
	t.Cleanup(func() { n.source.Close() })
	n.broker = kafkatest.Start(t, kafkatest.Config{Keep: true})
	n.topics = n.broker.Topics(t, 3)
	n.start()
	t.Cleanup(func() { n.stop() })
	return n
}

func (n *node) now() clock.Moment { return n.moment }

func (n *node) start() {
	n.t.Helper()
	log := slog.New(slog.DiscardHandler)
	s, state, err := spool.Open(n.t.Context(), spool.Options{Dir: n.dir, Clock: n.now, Log: log})
	if err != nil {
		n.t.Fatal(err)
	}
	producer, err := kafka.New(kafka.Options{Broker: n.broker.Options, Topics: n.topics, Timeout: 2 * time.Second})
	if err != nil {
		n.t.Fatal(err)
	}
	n.publisher = agent.NewPublisher(agent.PublisherOptions{Spools: []*spool.Spool{s}, Producer: producer, Clock: n.now, Log: log})
	n.host, err = agent.NewHost(agent.HostOptions{Name: "compute-1", Region: "RegionOne", Local: true, Source: n.source, Ports: n.ports,
		Spool: s, State: state, Interval: time.Minute, Hold: 24 * time.Hour, Version: "test", Clock: n.now, Log: log})
	if err != nil {
		n.t.Fatal(err)
	}
	n.stop = func() { producer.Close(); s.Close() }
}

func (n *node) poll() {
	n.t.Helper()
	if err := n.host.Poll(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) drain() {
	n.t.Helper()
	if err := n.publisher.Drain(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
}

// minute passes.
func (n *node) minute() {
	n.moment = clock.Moment{Wall: n.moment.Wall.Add(time.Minute), BootID: n.moment.BootID, Since: n.moment.Since + time.Minute}
}

// rate brings the records into the tiers and rates them. It gives a way to ask
// for one value; {hour} stands for the hour's begin.
func (n *node) rate(plan string) (query func(sql string) string) {
	t := n.t
	t.Helper()
	o := enginetest.Options(t)
	flags := []string{"--data", o.DataDir, "--database", o.Database}
	must(t, append(flags, "migrate")...)
	o.Create = true
	e, err := engine.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	must(t, append(flags, "ingest", "--kafka", strings.Join(n.broker.Options.Brokers, ","), "--port-topic", n.topics.Port, "--instance-topic", n.topics.Instance, "--disk-topic", n.topics.Disk)...)
	must(t, append(flags, "rollup", "--from", n.begin.Add(-time.Hour).Format(time.RFC3339))...)
	file := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(file, []byte(plan), 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, append(flags, "plan", "apply", file, "--from", "2020-01-01T00:00:00Z")...)
	must(t, append(flags, "rate", "--first-period", "usage")...)
	return func(sql string) string {
		t.Helper()
		hour := fmt.Sprintf("toDateTime('%s', 'UTC')", n.begin.Format(time.DateTime))
		var out string
		if err := e.Conn().QueryRow(t.Context(), strings.ReplaceAll(sql, "{hour}", hour)).Scan(&out); err != nil {
			t.Fatal(err)
		}
		return out
	}
}

// The whole way: domains, libvirt's protocol, the agent with its spool, Kafka's
// protocol, ingest, the tiers, rate. An hour of four instances, during which the
// broker is away for ten minutes and the agent is restarted, and one instance
// runs from half past. What each project owes is known beforehand.
func TestFromDomainsToPrices(t *testing.T) {
	const hour = 3600
	peer, err := libvirtpeer.Start(libvirtpeer.Options{Domains: 3})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { peer.Close() })
	n := newNode(t, peer.URI(), agent.InterfaceIDs{})
	away := false
	for minute := -1; minute <= 62; minute++ {
		n.poll()
		switch {
		case minute == 20 && !n.broker.Outside:
			n.broker.Pause()
			away = true
			if err := n.publisher.Drain(t.Context()); err == nil {
				t.Error("records were delivered to a broker that is away")
			}
		case minute == 25: // killed: nothing is told to it
			n.stop()
			n.start()
		case minute == 30:
			late := libvirtpeer.Make(3)
			late.CPUNS, late.NICs[0].Rx, late.NICs[0].Tx = 0, 0, 0
			for i := range late.Disks {
				d := &late.Disks[i]
				d.ReadBytes, d.WriteBytes, d.ReadRequests, d.WriteRequests = 0, 0, 0, 0
			}
			peer.StartDomain(late)
			if away {
				n.broker.Resume(t)
				away = false
			}
		}
		if !away {
			n.drain()
		}
		peer.Advance(time.Minute)
		n.minute()
	}
	query := n.rate(`
currency: EUR
services:
  - name: instance
    fields:
      - {name: flavor_name, mappings: [{value: m1.lab2, type: flat, cost: "1"}]}
  - name: disk.io.requests
    mappings: [{type: flat, cost: "0.001"}]
`)
	// 3,000 bytes a second came in, on one port each; the last one's for half an hour.
	got := query("SELECT toString(groupArray((covered, rx))) FROM (SELECT toString(sum(covered_seconds)) AS covered, sum(rx_bytes) AS rx FROM port_volume_hourly FINAL WHERE bucket = {hour} GROUP BY port_uuid ORDER BY port_uuid)")
	if want := fmt.Sprintf("[('%d',%d),('%d',%d),('%d',%d),('%d',%d)]", hour, 3000*hour, hour, 3000*hour, hour, 3000*hour, hour/2, 3000*hour/2); got != want {
		t.Errorf("traffic of the hour\n%s, want\n%s", got, want)
	}
	// An instance hour costs 1; two disks do three requests a second each: 21,600 an
	// hour at 0.001.
	got = query("SELECT toString(groupArray((scope, total))) FROM (SELECT scope, toString(sum(price)) AS total FROM rated WHERE begin = {hour} GROUP BY scope ORDER BY scope)")
	if want := "[('7f000000000040008000000000000001','22.6'),('7f000000000040008000000000000002','22.6'),('7f000000000040008000000000000003','22.6'),('7f000000000040008000000000000004','11.3')]"; got != want {
		t.Errorf("the projects owe\n%s, want\n%s", got, want)
	}
}

// ovnPorts asks OVN, as the agent's command does.
type ovnPorts struct{ *ovn.Resolver }

func (p ovnPorts) Watch(_ string, vnics []agent.VNIC) {
	var ids []string
	var taps []ovn.Tap
	for _, v := range vnics {
		if v.InterfaceID != "" {
			ids = append(ids, v.InterfaceID)
		} else {
			taps = append(taps, ovn.Tap{Name: v.Tap, Instance: v.Instance})
		}
	}
	p.SetPorts(ids, taps)
}

func (p ovnPorts) Resolve(id, tap string, instance uuid.UUID) (agent.Port, bool) {
	answer, ok := p.Resolver.Resolve(id)
	if id == "" {
		answer, ok = p.ResolveTap(tap, instance)
	}
	return agent.Port{UUID: answer.PortUUID, Network: answer.NetworkUUID, ProjectID: answer.ProjectID}, ok
}

// The same with real domains under a real libvirtd and their ports in a real
// OVN. What they do is theirs, so what is rated is compared with the counters at
// the hour's two ends; time is compressed, half a second for a minute.
func TestLabFromDomainsToPrices(t *testing.T) {
	lab.Up(t)
	resolver, err := ovn.New(ovn.Options{Endpoints: []string{lab.Northbound}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resolver.Close() })
	n := newNode(t, "qemu:///system", ovnPorts{resolver})
	counters := func() (rx, requests uint64) {
		for _, d := range n.source.last.Domains {
			for _, i := range d.Interfaces {
				rx += *i.RxBytes
			}
			for _, k := range d.Disks {
				requests += *k.ReadRequests + *k.WriteRequests
			}
		}
		return rx, requests
	}
	var rxBefore, requestsBefore, rx, requests uint64
	for minute := -1; minute <= 62; minute++ {
		n.poll()
		switch minute {
		case 0:
			rxBefore, requestsBefore = counters()
		case 60:
			rx, requests = counters()
			rx, requests = rx-rxBefore, requests-requestsBefore
		}
		n.drain()
		n.minute()
		time.Sleep(500 * time.Millisecond)
	}
	if rx == 0 || requests == 0 {
		t.Fatalf("the guests did nothing: %d bytes, %d requests", rx, requests)
	}
	query := n.rate(`
currency: EUR
services:
  - name: instance
    mappings: [{type: flat, cost: "1"}]
  - name: disk.io.requests
    mappings: [{type: flat, cost: "1"}]
`)
	got := query("SELECT toString(groupArray((scope, total))) FROM (SELECT scope, toString(sum(price)) AS total FROM rated WHERE begin = {hour} GROUP BY scope ORDER BY scope)")
	if want := fmt.Sprintf("[('%s','%d')]", lab.Project, 3+requests); got != want {
		t.Errorf("the projects owe\n%s, want\n%s", got, want)
	}
	got = query("SELECT toString(groupArray((port, network))) FROM (SELECT toString(port_uuid) AS port, toString(any(network_uuid)) AS network FROM port_volume_hourly FINAL WHERE bucket = {hour} GROUP BY port_uuid ORDER BY port_uuid)")
	if want := fmt.Sprintf("[('%s','%s'),('%s','%s'),('%s','%s'),('%s','%s')]", lab.Port1, lab.NetBlue, lab.Port2, lab.NetBlue, lab.Port3, lab.NetGreen, lab.Port4, lab.NetBlue); got != want {
		t.Errorf("ports and networks\n%s, want\n%s", got, want)
	}
	if got := query("SELECT toString(sum(rx_bytes)) FROM port_volume_hourly FINAL WHERE bucket = {hour}"); got != fmt.Sprint(rx) {
		t.Errorf("%s bytes came in, the counters say %d", got, rx)
	}
}
