package main

import (
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/agent"
	"github.com/ratebatch/ratebatch/agent/spool"
	"github.com/ratebatch/ratebatch/fixtures/kafkatest"
)

// A thousand polls, through the spool into Kafka, leave no goroutine, no
// descriptor and no file behind.
func TestNothingGrowsOverAThousandPolls(t *testing.T) {
	peer := startPeer(t, 5)
	b := kafkatest.Start(t, kafkatest.Config{})
	topics := b.Topics(t, 1)
	p := &program{stderr: &buffer{}, getenv: none, now: time.Now, flags: map[string]string{"no-ovn": "true", "libvirt-uri": peer.URI(), "hostname": "h",
		"state-dir": t.TempDir(), "topic": topics.Port, "instance-topic": topics.Instance, "disk-topic": topics.Disk, "bootstrap-servers": strings.Join(b.Options.Brokers, ","),
		"sasl-username": b.Options.User, "sasl-password": b.Options.Password}, output: "table"}
	if err := p.prepare(); err != nil {
		t.Fatal(err)
	}
	a, err := p.build(t.Context(), func(map[string]*spool.Spool) *agent.Metrics { return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	var goroutines, descriptors, files int
	for n := range 1001 {
		if err := a.hosts[0].Poll(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n%10 != 0 {
			continue // a batch costs the producer's linger
		}
		if err := a.publisher.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n == 50 {
			goroutines, descriptors, files = runtime.NumGoroutine(), count(t, "/proc/self/fd"), count(t, folderOf(p.config.StateDir, p.config.nodes()[0]))
		}
	}
	if now := runtime.NumGoroutine(); now > goroutines+3 {
		t.Errorf("%d goroutines, after 50 polls there were %d", now, goroutines)
	}
	if now := count(t, "/proc/self/fd"); now > descriptors+2 {
		t.Errorf("%d descriptors, after 50 polls there were %d", now, descriptors)
	}
	if now := count(t, folderOf(p.config.StateDir, p.config.nodes()[0])); now > files {
		t.Errorf("%d files, after 50 polls there were %d", now, files)
	}
}

func count(t *testing.T, dir string) int {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
