package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ratebatch/ratebatch/agent/wire"
	"github.com/ratebatch/ratebatch/fixtures/kafkatest"
	"github.com/ratebatch/ratebatch/fixtures/lab"
)

// sums adds up what the agent delivered, per port and per instance's disks.
type sums struct {
	client   *kgo.Client
	topics   wire.Topics
	seen     map[[2]uint64]bool
	ports    map[string]uint64
	networks map[string]string
	requests map[string]uint64
	domains  map[string]map[string]bool // ids per instance
}

func (s *sums) more(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	s.client.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
		var c wire.Common
		var err error
		add := func() {}
		switch r.Topic {
		case s.topics.Port:
			var x wire.Port
			err = wire.DecodePort(r.Value, &x)
			c, add = x.Common, func() {
				s.ports[x.PortUUID.String()] += x.RxBytes
				s.networks[x.PortUUID.String()] = x.NetworkUUID.String()
			}
		case s.topics.Instance:
			var x wire.Instance
			err = wire.DecodeInstance(r.Value, &x)
			c, add = x.Common, func() {
				id := x.InstanceUUID.String()
				if s.domains[id] == nil {
					s.domains[id] = map[string]bool{}
				}
				s.domains[id][x.DomainID] = true
				if x.ProjectID != lab.Project || x.FlavorName == "" || x.MemoryActualBytes == nil {
					t.Errorf("%s", r.Value)
				}
			}
		case s.topics.Disk:
			var x wire.Disk
			err = wire.DecodeDisk(r.Value, &x)
			c, add = x.Common, func() {
				if x.ReadRequests != nil && x.WriteRequests != nil {
					s.requests[x.InstanceUUID.String()] += *x.ReadRequests + *x.WriteRequests
				}
			}
		}
		if err != nil {
			t.Fatalf("%s: %v", r.Value, err)
		}
		if id := [2]uint64{c.Epoch, c.Sequence}; !s.seen[id] {
			s.seen[id] = true
			add()
		}
	})
}

// The agent on a real compute node: what it finds, and what becomes of it when
// libvirtd, a guest, OVN or the agent itself goes away.
func TestLabAgentOnARealComputeNode(t *testing.T) {
	l := lab.Up(t)
	b := kafkatest.Start(t, kafkatest.Config{})
	topics := b.Topics(t, 1)
	args := append([]string{"--libvirt-uri", "qemu:///system", "--ovn-nb-db", lab.Northbound, "--state-dir", t.TempDir(), "--poll-interval", "1",
		"--command-timeout", "3", "--hostname", "compute-1"}, kafkaFlags(b, topics)...)

	code, stdout, stderr := command(t, append([]string{"check", "--output", "json"}, args...)...)
	var found []finding
	if err := json.Unmarshal([]byte(stdout), &found); err != nil || code != 0 || len(found) != 4 || found[0].Says != "3 domains, 3 of them with a project" {
		t.Fatalf("check: exit %d, %v\n%s%s", code, err, stdout, stderr)
	}
	code, stdout, stderr = command(t, append([]string{"once", "--wait", "3s"}, args...)...)
	if code != 0 || !strings.Contains(stdout, lab.Port4) || !strings.Contains(stdout, lab.NetGreen) {
		t.Errorf("once: exit %d\n%s%s", code, stdout, stderr)
	}

	got := &sums{client: b.Client(t, kgo.ConsumeTopics(topics.All()...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())), topics: topics,
		seen: map[[2]uint64]bool{}, ports: map[string]uint64{}, networks: map[string]string{}, requests: map[string]uint64{}, domains: map[string]map[string]bool{}}
	agent := background(t, append([]string{"run", "--verbose"}, args...)...)
	all := func() bool {
		got.more(t)
		return len(got.ports) == 4 && len(got.domains) == 3 && len(got.requests) == 3
	}
	waitFor(t, "records of all three guests and four ports", all)
	for port, network := range map[string]string{lab.Port1: lab.NetBlue, lab.Port2: lab.NetBlue, lab.Port3: lab.NetGreen, lab.Port4: lab.NetBlue} {
		if got.networks[port] != network {
			t.Errorf("port %s is in network %s, want %s", port, got.networks[port], network)
		}
	}

	// What was delivered over all that follows must equal what the counters of the
	// guest that stays up say.
	rx := func() (n uint64) {
		t.Helper()
		out := l.Do(t, "virsh", "-r", "domstats", "--interface", "instance-00000001")
		for line := range strings.SplitSeq(out, "\n") {
			if _, err := fmt.Sscanf(strings.TrimSpace(line), "net.0.rx.bytes=%d", &n); err == nil {
				return n
			}
		}
		t.Fatalf("no counter in\n%s", out)
		return 0
	}
	low := got.ports[lab.Port1]
	first := rx()

	l.Signal(t, "libvirtd", syscall.SIGSTOP)
	time.Sleep(8 * time.Second)
	l.Signal(t, "libvirtd", syscall.SIGCONT)
	before := len(got.seen)
	waitFor(t, "records after libvirtd hung", func() bool { got.more(t); return len(got.seen) > before+20 })

	l.Signal(t, "libvirtd", syscall.SIGKILL)
	time.Sleep(2 * time.Second)
	l.Again(t)
	before = len(got.seen)
	waitFor(t, "records after libvirtd was killed", func() bool { got.more(t); return len(got.seen) > before+20 })

	// A guest is destroyed and made anew: another domain id, from zero.
	l.Do(t, "virsh", "destroy", "instance-00000002")
	l.Again(t)
	waitFor(t, "records of the new domain", func() bool { got.more(t); return len(got.domains[lab.VM2]) >= 2 })

	// OVN is away while the agent is restarted: the last answers are saved.
	l.Signal(t, "ovsdb-nb", syscall.SIGSTOP)
	agent.stop()
	agent = background(t, append([]string{"run", "--verbose"}, args...)...)
	port1 := got.ports[lab.Port1]
	waitFor(t, "traffic without OVN", func() bool { got.more(t); return got.ports[lab.Port1] > port1 })
	l.Signal(t, "ovsdb-nb", syscall.SIGCONT)

	last := rx()
	waitFor(t, "all that the counter says", func() bool { got.more(t); return got.ports[lab.Port1]-low >= last-first })
	// The two readings of the counter are not the agent's: a poll's worth on either side.
	if d := got.ports[lab.Port1] - low; d > rx()-first+(last-first)/2+10_000 {
		t.Errorf("%d bytes were delivered, the counter grew by %d", d, last-first)
	}
	agent.stop()
	if id, err := uuid.Parse(lab.VM2); err != nil || len(got.domains[id.String()]) != 2 {
		t.Errorf("domain ids of the restarted guest: %v", got.domains[lab.VM2])
	}
	if strings.Contains(agent.stderr.String(), "level=ERROR") {
		t.Errorf("the log has errors:\n%s", agent.stderr)
	}
}
