package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/ratebatch/ratebatch/agent/wire"
	"github.com/ratebatch/ratebatch/agent/wire/broker"
	"github.com/ratebatch/ratebatch/fixtures/kafkatest"
	"github.com/ratebatch/ratebatch/fixtures/libvirtpeer"
)

func TestMain(m *testing.M) {
	if os.Getenv("RATEBATCH_AGENT_TEST_PROCESS") != "" {
		os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr)) // TestKilledAtAnyMoment
	}
	// Variables of the machine must not reach the tests.
	for _, s := range settings {
		os.Unsetenv(s.env)
	}
	goleak.VerifyTestMain(m)
}

// buffer may be read while a command writes into it.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// command runs one command line to its end.
func command(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs buffer
	code = run(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

// running is an agent that works in the background.
type running struct {
	t      *testing.T
	stderr *buffer
	cancel context.CancelFunc
	done   chan int
}

func background(t *testing.T, args ...string) *running {
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{t: t, stderr: &buffer{}, cancel: cancel, done: make(chan int, 1)}
	go func() { r.done <- run(ctx, args, io.Discard, r.stderr) }()
	t.Cleanup(func() { r.stop() })
	return r
}

// stop is SIGTERM.
func (r *running) stop() {
	r.t.Helper()
	r.cancel()
	select {
	case code := <-r.done:
		r.done <- code
		if code != 0 {
			r.t.Errorf("the agent ended with %d:\n%s", code, r.stderr)
		}
	case <-time.After(30 * time.Second):
		r.t.Fatalf("the agent does not stop:\n%s", r.stderr)
	}
}

// waitFor polls until ok says true.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for: %s", what)
		}
	}
}

func startPeer(t *testing.T, domains int) *libvirtpeer.Peer {
	t.Helper()
	peer, err := libvirtpeer.Start(libvirtpeer.Options{Domains: domains})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { peer.Close() })
	return peer
}

// identity is what makes a sample the same one.
type identity struct {
	host            string
	epoch, sequence uint64
}

// delivered reads the three topics, once per identity as ingest does, and adds
// up: traffic per port, and how long instances were seen.
type delivered struct {
	client    *kgo.Client
	topics    wire.Topics
	seen      map[identity]string
	rx, read  uint64
	rxOf      map[string]uint64 // by host
	instances map[string]time.Duration
	project   map[string]string
	names     map[string]string
}

func deliveries(t *testing.T, b *kafkatest.Broker, topics wire.Topics) *delivered {
	return &delivered{
		client: b.Client(t, kgo.ConsumeTopics(topics.All()...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())), topics: topics,
		seen: map[identity]string{}, rxOf: map[string]uint64{}, instances: map[string]time.Duration{}, project: map[string]string{}, names: map[string]string{},
	}
}

func (d *delivered) more(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	d.client.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
		var c wire.Common
		var key []byte
		var err error
		add := func() {}
		switch r.Topic {
		case d.topics.Port:
			var x wire.Port
			err = wire.DecodePort(r.Value, &x)
			c, key, add = x.Common, x.Key(), func() { d.rx, d.rxOf[x.Host] = d.rx+x.RxBytes, d.rxOf[x.Host]+x.RxBytes }
		case d.topics.Instance:
			var x wire.Instance
			err = wire.DecodeInstance(r.Value, &x)
			c, key, add = x.Common, x.Key(), func() {
				id := x.InstanceUUID.String()
				d.instances[id] += time.Duration(x.EndMS-x.BeginMS) * time.Millisecond
				d.project[id], d.names[id] = x.ProjectID, x.InstanceName
			}
		case d.topics.Disk:
			var x wire.Disk
			err = wire.DecodeDisk(r.Value, &x)
			c, key, add = x.Common, x.Key(), func() { d.read += *x.ReadBytes }
		}
		if err != nil || !bytes.Equal(key, r.Key) {
			t.Fatalf("%s: %v", r.Value, err)
		}
		id := identity{c.Host, c.Epoch, c.Sequence}
		if before, ok := d.seen[id]; ok {
			if before != string(r.Value) {
				t.Errorf("two samples have one identity:\n%s\n%s", before, r.Value)
			}
			return
		}
		d.seen[id] = string(r.Value)
		add()
	})
}

func kafkaFlags(b *kafkatest.Broker, topics wire.Topics) []string {
	out := []string{"--bootstrap-servers", strings.Join(b.Options.Brokers, ","), "--topic", topics.Port, "--instance-topic", topics.Instance, "--disk-topic", topics.Disk}
	if b.Options.User != "" {
		out = append(out, "--sasl-username", b.Options.User, "--sasl-mechanism", b.Options.Mechanism)
	}
	return out
}

func TestRunMetersDomainsIntoKafka(t *testing.T) {
	peer := startPeer(t, 3)
	b := kafkatest.Start(t, kafkatest.Config{Mechanism: broker.ScramSHA256, Keep: true})
	topics := b.Topics(t, 3)
	t.Setenv("KAFKA_SASL_PASSWORD", b.Options.Password)
	args := append([]string{"run", "--no-ovn", "--libvirt-uri", peer.URI(), "--state-dir", t.TempDir(), "--poll-interval", "1",
		"--region-name", "R1", "--hostname", "compute-1", "--log-format", "json"}, kafkaFlags(b, topics)...)
	agent := background(t, args...)
	waitFor(t, "a first poll", func() bool { return peer.Calls(libvirtpeer.ProcStats) >= 1 })
	got := deliveries(t, b, topics)
	// The peer's domains receive 3,000 bytes and read 4,096 a second on each of two disks.
	peer.Advance(10 * time.Second)
	waitFor(t, "ten seconds' traffic", func() bool { got.more(t); return got.rx == 3*30_000 && got.read == 6*40_960 })
	if len(got.instances) != 3 {
		t.Errorf("%d instances", len(got.instances))
	}
	for id, project := range got.project {
		if !strings.HasPrefix(project, "7f00") || !strings.HasPrefix(got.names[id], "server-") {
			t.Errorf("instance %s (%s) is of project %q", id, got.names[id], project)
		}
	}
	if !b.Outside {
		// The broker goes, traffic comes, the agent is restarted meanwhile: nothing is lost.
		b.Pause()
		peer.Advance(10 * time.Second)
		time.Sleep(2500 * time.Millisecond)
		agent.stop()
		peer.Advance(10 * time.Second)
		agent = background(t, args...)
		time.Sleep(1500 * time.Millisecond)
		b.Resume(t)
		waitFor(t, "thirty seconds' traffic", func() bool { got.more(t); return got.rx >= 3*90_000 && got.read >= 6*122_880 })
	}
	agent.stop()
	if got.more(t); got.rx != 3*90_000 && !b.Outside {
		t.Errorf("%d bytes arrived, want %d", got.rx, 3*90_000)
	}
	if strings.Contains(agent.stderr.String(), b.Options.Password) {
		t.Error("the log holds the password")
	}
}

func TestASecondAgentOnOneStateIsRefused(t *testing.T) {
	peer := startPeer(t, 1)
	dir := t.TempDir()
	args := []string{"run", "--no-ovn", "--libvirt-uri", peer.URI(), "--state-dir", dir, "--bootstrap-servers", "127.0.0.1:1", "--hostname", "a/b c"}
	first := background(t, args...)
	waitFor(t, "the agent to run", func() bool { return strings.Contains(first.stderr.String(), "the agent runs") })
	code, _, stderr := command(t, args...)
	if code != 1 || !strings.Contains(stderr, "another ratebatch-agent uses this folder") {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

func TestSeveralHostsInOneAgent(t *testing.T) {
	one, two := startPeer(t, 2), startPeer(t, 3)
	hung := startPeer(t, 1)
	hung.Hang(true)
	b := kafkatest.Start(t, kafkatest.Config{})
	topics := b.Topics(t, 1)
	two.Edit(func(domains []*libvirtpeer.Domain) {
		for i, d := range domains {
			d.UUID[0] = 0xbb
			d.Title = fmt.Sprint("other-", i)
		}
	})
	file := filepath.Join(t.TempDir(), "agent.yaml")
	text := fmt.Sprintf(`# three hypervisors
interval: 1
region_name: RegionOne
state_dir: %s
command_timeout: 2s
listen: 127.0.0.1:0
ovn: {disabled: true}
kafka:
  bootstrap_servers: %s
  topic: %s
  instance_topic: %s
  disk_topic: %s
nodes:
  - {host: compute-1, libvirt_uri: "%s"}
  - {host: compute-2, libvirt_uri: "%s", region_name: RegionTwo}
  - {host: compute-3, libvirt_uri: "%s"}
`, t.TempDir(), strings.Join(b.Options.Brokers, ","), topics.Port, topics.Instance, topics.Disk, one.URI(), two.URI(), hung.URI())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	agent := background(t, "--config", file)
	client := b.Client(t, kgo.ConsumeTopics(topics.Instance), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	seen := map[string]bool{}
	waitFor(t, "records of both hosts", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		client.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			var x wire.Instance
			if err := wire.DecodeInstance(r.Value, &x); err != nil {
				t.Fatal(err)
			}
			seen[x.RegionName+"/"+x.Host+"/"+x.InstanceName] = true
		})
		return len(seen) >= 5
	})
	for _, want := range []string{"RegionOne/compute-1/server-1", "RegionOne/compute-1/server-2", "RegionTwo/compute-2/other-0", "RegionTwo/compute-2/other-2"} {
		if !seen[want] {
			t.Errorf("no record of %s; seen %v", want, seen)
		}
	}
	// The hung one is reported, where it is looked for.
	address := regexp.MustCompile(`address=(\S+)`).FindStringSubmatch(agent.stderr.String())
	if address == nil {
		t.Fatal(agent.stderr.String())
	}
	metrics := get(t, "http://"+address[1]+"/metrics", 200)
	for _, want := range []string{`ratebatch_agent_domains{host="compute-2",kind="all"} 3`, `ratebatch_agent_polls_total{host="compute-3",result="error"}`, `ratebatch_agent_spool_records{host="compute-1"}`, "ratebatch_agent_delivered_records_total"} {
		waitFor(t, want, func() bool {
			metrics = get(t, "http://"+address[1]+"/metrics", 200)
			return strings.Contains(metrics, want)
		})
	}
	if health := get(t, "http://"+address[1]+"/healthz", 200); !strings.Contains(health, `"ok"`) {
		t.Errorf("health: %s", health)
	}
	http.DefaultClient.CloseIdleConnections()
	agent.stop()
}

func get(t *testing.T, url string, status int) string {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != status {
		t.Fatalf("%s: %s %v", url, response.Status, err)
	}
	return string(text)
}

func TestOncePrintsRecords(t *testing.T) {
	peer := startPeer(t, 2)
	go func() { // between the two polls
		for peer.Calls(libvirtpeer.ProcStats) == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(300 * time.Millisecond)
		peer.Advance(10 * time.Second)
	}()
	code, stdout, stderr := command(t, "once", "--no-ovn", "--libvirt-uri", peer.URI(), "--wait", "1s", "--hostname", "h")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	if len(lines) != 8 { // two domains with one instance, one port and two disks each
		t.Errorf("%d lines:\n%s", len(lines), stdout)
	}
	for _, line := range lines {
		var x map[string]any
		if err := json.Unmarshal([]byte(line), &x); err != nil || x["host"] != "h" {
			t.Errorf("%s: %v", line, err)
		}
	}
	if !strings.Contains(stdout, `"rx_bytes":30000`) {
		t.Errorf("no record has the traffic:\n%s", stdout)
	}
	t.Run("the old way", func(t *testing.T) {
		code, _, stderr := command(t, "--once", "--publish-kafka", "--no-ovn", "--libvirt-uri", "qemu+unix:///system?socket=/nowhere")
		if code != 1 || !strings.Contains(stderr, "/nowhere") {
			t.Errorf("exit %d: %s", code, stderr)
		}
	})
}

func TestCheckSaysWhatIsWrongAndHowToMendIt(t *testing.T) {
	peer := startPeer(t, 2)
	b := kafkatest.Start(t, kafkatest.Config{Mechanism: broker.ScramSHA256})
	topics := b.Topics(t, 1)
	good := append([]string{"check", "--no-ovn", "--libvirt-uri", peer.URI(), "--state-dir", t.TempDir(), "--sasl-password-file", secretFile(t, b.Options.Password)}, kafkaFlags(b, topics)...)
	code, stdout, stderr := command(t, good...)
	if code != 0 || strings.Count(stdout, "ok ") != 4 || !strings.Contains(stdout, "2 domains, 2 of them with a project") {
		t.Errorf("exit %d:\n%s%s", code, stdout, stderr)
	}
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"libvirt is not there":    {[]string{"--libvirt-uri", "qemu+unix:///system?socket=/nowhere"}, "group libvirt"},
		"Kafka is not there":      {[]string{"--bootstrap-servers", "127.0.0.1:1"}, "advertised.listeners"},
		"a topic is missing":      {[]string{"--topic", "nowhere"}, "ratebatch topics apply"},
		"the password is wrong":   {[]string{"--sasl-password-file", secretFile(t, "wrong-horse")}, "WRONG  Kafka"},
		"OVN is not there":        {[]string{"--no-ovn=false", "--ovn-nb-db", "tcp:127.0.0.1:1", "--command-timeout", "2"}, "ovn-nbctl get-connection"},
		"the state has no folder": {[]string{"--state-dir", "/proc/nowhere/state"}, "install -d"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := command(t, append(good, tt.args...)...)
			if code != 1 || !strings.Contains(stdout, tt.want) || strings.Contains(stdout+stderr, "wrong-horse") {
				t.Errorf("exit %d, want %q in\n%s%s", code, tt.want, stdout, stderr)
			}
			code, stdout, _ = command(t, append(append(good, tt.args...), "--output", "json")...)
			var found []finding
			if err := json.Unmarshal([]byte(stdout), &found); err != nil || code != 1 || len(found) != 4 {
				t.Errorf("exit %d, %v:\n%s", code, err, stdout)
			}
		})
	}
	t.Run("no domain has a project", func(t *testing.T) {
		peer.Edit(func(domains []*libvirtpeer.Domain) {
			for _, d := range domains {
				d.XML = "<domain type='qemu'><name>" + d.Name + "</name></domain>"
			}
		})
		if code, stdout, _ := command(t, good...); code != 1 || !strings.Contains(stdout, "nobody's") {
			t.Errorf("exit %d:\n%s", code, stdout)
		}
	})
}

func secretFile(t *testing.T, secret string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestStopsOnASignalWhileNothingAnswers(t *testing.T) {
	peer := startPeer(t, 1)
	peer.Hang(true)
	agent := background(t, "run", "--no-ovn", "--libvirt-uri", peer.URI(), "--state-dir", t.TempDir(), "--bootstrap-servers", "127.0.0.1:1", "--poll-interval", "1")
	waitFor(t, "a poll that hangs", func() bool { return strings.Contains(agent.stderr.String(), "the agent runs") })
	time.Sleep(1500 * time.Millisecond)
	began := time.Now()
	agent.stop()
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("it took %s", took)
	}
}
