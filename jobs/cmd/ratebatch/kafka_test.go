package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/ratebatch/ratebatch/agent/wire"
	"github.com/ratebatch/ratebatch/agent/wire/broker"
	"github.com/ratebatch/ratebatch/fixtures/kafkatest"
	"github.com/ratebatch/ratebatch/ratebatch"
)

// devKafka starts 'ratebatch dev kafka' as a process and returns its address
// and a way to end it: by a signal that is told, or by one that is not.
func devKafka(t *testing.T, args ...string) (address string, stop func(os.Signal)) {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"dev", "kafka", "--output", "json"}, args...)...)
	cmd.Env = append(os.Environ(), envProgram+"=1")
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	stop = func(s os.Signal) {
		if !ended {
			ended = true
			_ = cmd.Process.Signal(s)
			_ = cmd.Wait() // killed or interrupted: both are an error here
		}
	}
	t.Cleanup(func() { stop(os.Kill) })
	var said struct{ Address string }
	if err := json.NewDecoder(bufio.NewReader(out)).Decode(&said); err != nil {
		t.Fatalf("dev kafka said nothing: %v", err)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return said.Address, stop
}

// ends sums the end offsets of the three topics.
func ends(t *testing.T, o broker.Options) (records int64) {
	t.Helper()
	client, err := o.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	offsets, err := kadm.NewClient(client).ListEndOffsets(t.Context(), wire.DefaultTopics().All()...)
	if err != nil {
		t.Fatal(err)
	}
	offsets.Each(func(o kadm.ListedOffset) { records += o.Offset })
	return records
}

// The way that docs/ingest.md shows: a broker with logins and ACLs, topics and
// users by topics apply, records by the agents' user. The broker is killed in
// between and loses nothing.
func TestTopicsApplyAndSimulateOnADevelopmentBroker(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	users := write("users", "SCRAM-SHA-256 admin admin-secret super\n")
	args := []string{"--sasl", users, "--acls", "--kafka-data", filepath.Join(dir, "data")}
	address, stop := devKafka(t, args...)
	_, port, _ := strings.Cut(address, ":")
	args = append(args, "--port", port)
	login := []string{"--kafka", address, "--kafka-user", "admin", "--kafka-password-file", write("admin", "admin-secret\n")}
	apply := append([]string{"topics", "apply", "--partitions", "2", "--agent-user", "agent", "--agent-password-file", write("agent", "agent-secret\n"),
		"--ingest-user", "ingest", "--ingest-password-file", write("ingest", "ingest-secret")}, login...)

	dry := must(t, append(apply, "--dry-run")...)
	if !strings.Contains(dry, "would change") || !strings.Contains(dry, "read on group ratebatch-ingest") || strings.Contains(dry, "-secret") {
		t.Errorf("the dry run prints\n%s", dry)
	}
	first := must(t, append(apply, "--output", "json")...)
	var plan struct {
		Changes []struct{ What, Name, Setting, Is, Wanted string }
		DryRun  bool `json:"dry_run"`
	}
	if err := json.Unmarshal([]byte(first), &plan); err != nil || len(plan.Changes) != 3*6+2+8 || plan.DryRun || strings.Contains(first, "-secret") {
		t.Errorf("%d changes, %v:\n%s", len(plan.Changes), err, first)
	}
	if again := must(t, apply...); !strings.Contains(again, "nothing differs: 28") {
		t.Errorf("again it prints\n%s", again)
	}
	code, _, stderr := cli(t, append(apply, "--partitions", "1")...)
	if code != ratebatch.ExitConfig || !strings.Contains(stderr, "has 2 partitions, 1 are wanted") {
		t.Errorf("fewer partitions: exit %d, %s", code, stderr)
	}

	agent := []string{"simulate", "--kafka", address, "--kafka-user", "agent", "--instances", "20", "--cycles", "30", "--faults", "--vanish", "0", "--output", "json"}
	t.Setenv("RATEBATCH_KAFKA_PASSWORD", "agent-secret")
	var sent struct{ Instances, Ports, Disks, Garbage int64 }
	if err := json.Unmarshal([]byte(must(t, agent...)), &sent); err != nil || sent.Ports < 20*25 {
		t.Fatalf("simulate: %+v, %v", sent, err)
	}
	total := sent.Instances + sent.Ports + sent.Disks + sent.Garbage
	admin := broker.Options{Brokers: []string{address}, User: "admin", Password: "admin-secret"}
	if n := ends(t, admin); n != total {
		t.Errorf("the topics hold %d records, %d were sent", n, total)
	}
	stop(os.Kill)
	devKafka(t, args...)
	if n := ends(t, admin); n != total {
		t.Errorf("after the broker was killed the topics hold %d records, %d were sent", n, total)
	}
	if again := must(t, append(apply, "--output", "json")...); !strings.Contains(again, `"same": 28`) {
		t.Errorf("after the broker was killed topics apply changes\n%s", again)
	}

	t.Setenv("RATEBATCH_KAFKA_PASSWORD", "hunter2")
	if code, stdout, stderr := cli(t, agent...); code == 0 || strings.Contains(stdout+stderr, "hunter2") || !strings.Contains(stderr, address) {
		t.Errorf("a wrong password: exit %d, %s", code, stderr)
	}
}

func TestDevKafkaEndsWhenToldTo(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	done := make(chan int)
	go func() {
		done <- run(ctx, []string{"dev", "kafka"}, strings.NewReader(""), in, t.Output())
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "development broker at 127.0.0.1:") {
		t.Fatalf("%q, %v", line, err)
	}
	cancel()
	select {
	case code := <-done:
		if code != 0 {
			t.Errorf("exit %d", code)
		}
	case <-time.After(10 * time.Second):
		t.Error("it does not end")
	}
}

func TestMistakesOfTheKafkaFlags(t *testing.T) {
	b := kafkatest.Start(t, kafkatest.Config{})
	address := strings.Join(b.Options.Brokers, ",")
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"no broker":               {[]string{"topics", "apply"}, "no broker is named"},
		"a URL":                   {[]string{"topics", "apply", "--kafka", "kafka://x"}, "without a scheme"},
		"no password":             {[]string{"topics", "apply", "--kafka", address, "--kafka-user", "u"}, "user u without a password"},
		"a missing file":          {[]string{"topics", "apply", "--kafka", address, "--agent-user", "a", "--agent-password-file", "/nowhere"}, "/nowhere"},
		"the same user":           {[]string{"topics", "apply", "--kafka", address, "--agent-user", "a", "--ingest-user", "a"}, "cannot be the agents' and ingest's"},
		"tiers to Kafka":          {[]string{"simulate", "--kafka", address, "--tiers"}, "--tiers with --kafka"},
		"topics that are missing": {[]string{"simulate", "--kafka", address, "--cycles", "3", "--port-topic", b.Name("x"), "--instance-topic", b.Name("y"), "--disk-topic", b.Name("z")}, "ratebatch topics apply"},
		"ACLs without a login":    {[]string{"dev", "kafka", "--acls"}, "--acls without --sasl"},
		"a file that is missing":  {[]string{"dev", "kafka", "--sasl", "/nowhere"}, "/nowhere"},
	} {
		if code, _, stderr := cli(t, tt.args...); code != ratebatch.ExitConfig || !strings.Contains(stderr, tt.want) {
			t.Errorf("%s: exit %d, %s, want %q", name, code, stderr, tt.want)
		}
	}
}
