package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ratebatch/ratebatch/agent/wire"
	"github.com/ratebatch/ratebatch/fixtures/kafkatest"
	"github.com/ratebatch/ratebatch/fixtures/libvirtpeer"
)

// A guest that migrates to another host and back is metered by both: each
// counts what happened on it, from zero where the domain arrives, and what the
// source did until the very switch. Nothing is lost and its past counts once.
func TestALiveMigrationCountsOnEachSideWhatHappenedThere(t *testing.T) {
	one, two := startPeer(t, 1), startPeer(t, 0)
	b := kafkatest.Start(t, kafkatest.Config{})
	topics := b.Topics(t, 1)
	file := filepath.Join(t.TempDir(), "agent.yaml")
	text := fmt.Sprintf(`interval: 1
state_dir: %s
ovn: {disabled: true}
kafka: {bootstrap_servers: '%s', topic: %s, instance_topic: %s, disk_topic: %s}
nodes:
  - {host: compute-1, libvirt_uri: "%s"}
  - {host: compute-2, libvirt_uri: "%s"}
`, t.TempDir(), strings.Join(b.Options.Brokers, ","), topics.Port, topics.Instance, topics.Disk, one.URI(), two.URI())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	agent := background(t, "run", "--config", file)
	got := deliveries(t, b, topics)
	polls := func(n int) {
		t.Helper()
		first, second := one.Calls(libvirtpeer.ProcStats), two.Calls(libvirtpeer.ProcStats)
		waitFor(t, "polls of both hosts", func() bool {
			got.more(t)
			return one.Calls(libvirtpeer.ProcStats) >= first+n && two.Calls(libvirtpeer.ProcStats) >= second+n
		})
	}
	rx := map[string]uint64{}
	expect := func(step string) {
		t.Helper()
		waitFor(t, step, func() bool {
			got.more(t)
			return got.rxOf["compute-1"] >= rx["compute-1"] && got.rxOf["compute-2"] >= rx["compute-2"]
		})
		if got.rxOf["compute-1"] != rx["compute-1"] || got.rxOf["compute-2"] != rx["compute-2"] {
			t.Errorf("%s: bytes received by host %v, want %v", step, got.rxOf, rx)
		}
	}
	polls(1) // the baseline
	id := libvirtpeer.Make(0).UUID
	work := func(p *libvirtpeer.Peer, host string) { // 3,000 bytes a second
		p.Advance(10 * time.Second)
		rx[host] += 30_000
	}
	move := func(from, to *libvirtpeer.Peer, source, target string) {
		t.Helper()
		m := libvirtpeer.Migrate(from, to, id)
		work(from, source) // while its memory is copied
		polls(2)
		expect("the source's traffic during the copy")
		work(from, source)    // within the interval in which it leaves
		m.Switch(time.Second) // the event has the agent read it once more
		work(to, target)
		polls(2)
		expect("the traffic of both sides after the switch")
	}
	work(one, "compute-1")
	polls(2)
	move(one, two, "compute-1", "compute-2")
	move(two, one, "compute-2", "compute-1")
	agent.stop()
	got.more(t)
	expect("all traffic")
	// Two disks read 4,096 bytes a second each.
	if want := 2 * 4096 * (rx["compute-1"] + rx["compute-2"]) / 3000; got.read != want {
		t.Errorf("%d bytes were read, want %d", got.read, want)
	}
}

// Names of any length and alphabet arrive as far as a record holds them, and a
// domain whose XML is a bomb is metered to nobody.
func TestLongNamesAndXMLBombsCostNobodyAnything(t *testing.T) {
	peer := startPeer(t, 4)
	long := strings.Repeat("ü", 10_000)
	peer.Edit(func(ds []*libvirtpeer.Domain) {
		ds[0].Title, ds[0].Flavor = long, long
		ds[1].Name, ds[1].XML = strings.Repeat("名", 10_000), "<domain/>"
		ds[2].XML = `<!DOCTYPE lolz [<!ENTITY a "lol"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]><domain><name>&b;</name></domain>`
		ds[3].Title = "Überwachung 監視 \U0001F4C8"
		for _, d := range ds[1:3] {
			d.NICs = nil // without the XML's ids they are no ports without OVN
		}
	})
	b := kafkatest.Start(t, kafkatest.Config{})
	topics := b.Topics(t, 1)
	agent := background(t, append([]string{"run", "--no-ovn", "--libvirt-uri", peer.URI(), "--state-dir", t.TempDir(), "--poll-interval", "1", "--hostname", "h"}, kafkaFlags(b, topics)...)...)
	waitFor(t, "a first poll", func() bool { return peer.Calls(libvirtpeer.ProcStats) >= 1 })
	got := deliveries(t, b, topics)
	peer.Advance(10 * time.Second)
	waitFor(t, "all traffic", func() bool { got.more(t); return got.rx == 2*30_000 && got.read == 8*40_960 })
	agent.stop()
	name := func(i int) string { return got.names[libvirtpeer.Make(i).UUID.String()] }
	project := func(i int) string { return got.project[libvirtpeer.Make(i).UUID.String()] }
	if name(0) != long[:wire.MaxText] || !utf8.ValidString(name(0)) || project(0) == "" {
		t.Errorf("the long name became one of %d bytes, of project %q", len(name(0)), project(0))
	}
	if n := name(1); !strings.HasPrefix(strings.Repeat("名", 10_000), n) || len(n) < wire.MaxText-3 || len(n) > wire.MaxText || project(1) != "" {
		t.Errorf("the domain's long name became one of %d bytes, of project %q", len(n), project(1))
	}
	if project(2) != "" || name(2) != libvirtpeer.Make(2).Name {
		t.Errorf("the bomb is of project %q and called %q", project(2), name(2))
	}
	if name(3) != "Überwachung 監視 \U0001F4C8" || project(3) == "" {
		t.Errorf("name %q of project %q", name(3), project(3))
	}
}
