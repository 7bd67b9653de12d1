package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/agent/spool"
	"github.com/ratebatch/ratebatch/fixtures/kafkatest"
	"github.com/ratebatch/ratebatch/fixtures/libvirtpeer"
)

// What was used under a name that the configuration has no longer is sent, and
// what is counted under the next name is not counted again under the first.
func TestRecordsOfARenamedHostAreSent(t *testing.T) {
	peer := startPeer(t, 2)
	peer.Edit(func(domains []*libvirtpeer.Domain) { domains[1].NICs[0].InterfaceID = "" }) // nobody can say which port it is
	b := kafkatest.Start(t, kafkatest.Config{})
	topics := b.Topics(t, 1)
	dir := t.TempDir()
	start := func(region string, more ...string) *running {
		t.Helper()
		polls := peer.Calls(libvirtpeer.ProcStats)
		agent := background(t, append([]string{"run", "--no-ovn", "--libvirt-uri", peer.URI(), "--state-dir", dir, "--poll-interval", "1", "--hostname", "compute-1", "--region-name", region}, more...)...)
		waitFor(t, "a poll as "+region, func() bool { return peer.Calls(libvirtpeer.ProcStats) > polls })
		return agent
	}
	work := func() { // 3,000 bytes a second on each domain
		peer.Advance(10 * time.Second)
		polls := peer.Calls(libvirtpeer.ProcStats)
		waitFor(t, "two polls", func() bool { return peer.Calls(libvirtpeer.ProcStats) > polls+1 })
	}
	records := func(region string) int {
		found, err := filepath.Glob(filepath.Join(dir, region+"_compute-1", "*.records"))
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	agent := start("R1", "--bootstrap-servers", "127.0.0.1:1")
	work()
	agent.stop()
	if records("R1") == 0 {
		t.Fatal("nothing waits to be sent")
	}
	got := deliveries(t, b, topics)
	agent = start("R2", kafkaFlags(b, topics)...)
	waitFor(t, "the traffic of R1", func() bool { got.more(t); return got.rx == 30_000 })
	work()
	waitFor(t, "the traffic of R2", func() bool { got.more(t); return got.rx == 60_000 })
	waitFor(t, "R1's folder to be empty", func() bool { return records("R1") == 0 })
	waitFor(t, "R1's folder to be let go", func() bool {
		s, _, err := spool.Open(t.Context(), spool.Options{Dir: filepath.Join(dir, "R1_compute-1"), Log: slog.New(slog.DiscardHandler)})
		if err == nil {
			s.Close()
		}
		return err == nil
	})
	agent.stop()
	for _, want := range []string{"a former host has unsent records; they are sent", "host=R1/compute-1", "traffic of a former host was held", "vnics=1 bytes=", "its hypervisor is metered as R2/compute-1 now"} {
		if !strings.Contains(agent.stderr.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, agent.stderr)
		}
	}
	// Back to the first name: what R2 counted is R2's.
	agent = start("R1", kafkaFlags(b, topics)...)
	work()
	waitFor(t, "the traffic after the baseline", func() bool { got.more(t); return got.rx >= 90_000 })
	agent.stop()
	if got.more(t); got.rx != 90_000 {
		t.Errorf("%d bytes arrived, want 90000", got.rx)
	}
	if _, err := os.Stat(filepath.Join(dir, "R1_compute-1", "former.state")); err != nil {
		t.Error(err)
	}
}
