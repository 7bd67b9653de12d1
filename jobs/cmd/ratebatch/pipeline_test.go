package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/fixtures/kafkatest"
	"github.com/ratebatch/ratebatch/fixtures/simulate"
	"github.com/ratebatch/ratebatch/jobs/ingest"
	"github.com/ratebatch/ratebatch/jobs/reconcile"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/engine"
	"github.com/ratebatch/ratebatch/ratebatch/engine/enginetest"
	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

// pipelinePlan prices what comes from all three kinds of records.
const pipelinePlan = `
currency: EUR
services:
  - name: instance
    mappings: [{cost: "0.01", type: flat}]
  - name: network.incoming
    mappings: [{cost: "0.000000001", type: flat}]
`

// The whole way with faults on: a cloud's records with repeats, late ones,
// migrations, silent hosts and garbage; ingests that are killed; tiers, rating,
// and the proof that nothing is missing. All of it by the commands.
func TestFromTheTopicsToAReconciledMonth(t *testing.T) {
	b := kafkatest.Start(t, kafkatest.Config{})
	topics := b.Topics(t, 3)
	o := enginetest.Options(t)
	flags := []string{"--data", o.DataDir, "--database", o.Database}
	must(t, append(flags, "migrate")...)
	o.Create = true
	e, err := engine.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	s := store.New(e.Conn(), e.Database())
	kafka := []string{"--port-topic", topics.Port, "--instance-topic", topics.Instance, "--disk-topic", topics.Disk}
	t.Setenv("RATEBATCH_KAFKA", strings.Join(b.Options.Brokers, ","))
	t.Setenv("RATEBATCH_KAFKA_USER", b.Options.User)
	t.Setenv("RATEBATCH_KAFKA_PASSWORD", b.Options.Password)

	// Usage of the last hours, up to two hours ago: those periods are ready.
	const hours = 8
	begin := time.Now().UTC().Truncate(time.Hour).Add(-(hours + 2) * time.Hour)
	cloud := simulate.Cloud{Seed: 11, Instances: 24, Hours: hours, Begin: begin, Hosts: 4,
		Faults: simulate.Faults{Duplicates: 10_000, Late: 10_000, Migrations: 3, Resizes: 2, Vanish: 1, Garbage: 1000}}
	client := b.Client(t)
	sent, err := cloud.Produce(t.Context(), client, topics, nil)
	if err != nil {
		t.Fatal(err)
	}

	// Ingests are killed while they write; the last one ends.
	group := append(append(append([]string{}, flags...), "ingest", "--output", "json", "--group", b.Name("group"), "--session", "1s"), kafka...)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		c := exec.Command(program, append(group, "--batch-records", "500")...)
		c.Env = append(os.Environ(), envProgram+"=1")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(600+rand.IntN(1500)) * time.Millisecond)
		_ = c.Process.Kill()
		_ = c.Wait()
	}
	code, stdout, stderr := cli(t, group...)
	if code != ratebatch.ExitRejected && code != 0 {
		t.Fatalf("ingest: exit %d\n%s%s", code, stdout, stderr)
	}
	var result ingest.Result
	if err := json.Unmarshal([]byte(stdout), &result); err != nil {
		t.Fatalf("%v in %s", err, stdout)
	}
	if len(result.Regions) != 1 || time.Since(result.Regions[0].Watermark) > 10*time.Minute || len(result.Losses) != 0 {
		t.Errorf("regions %+v, losses %+v", result.Regions, result.Losses)
	}
	var rejected int64
	if err := e.Conn().QueryRow(t.Context(), "SELECT toInt64(count()) FROM rejected_records FINAL").Scan(&rejected); err != nil || rejected != sent.Garbage || sent.Garbage == 0 {
		t.Errorf("%d rejected records are listed (%v), %d were sent", rejected, err, sent.Garbage)
	}

	// Rate brings the tiers up to date by itself.
	file := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(file, []byte(pipelinePlan), 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, append(flags, "plan", "apply", file)...)
	rated := rateJSON(t, must(t, append(flags, "rate", "--first-period", "usage", "--output", "json")...))
	if rated.Periods < hours || rated.Scopes != 3 {
		t.Errorf("rated %+v, want %d periods of 3 scopes at least", rated, hours)
	}
	distinct, err := cloud.Distinct()
	if err != nil {
		t.Fatal(err)
	}
	storetest.World{Ports: distinct.Ports, Instances: distinct.Instances, Disks: distinct.Disks}.Compare(t, s, "RegionOne")

	months := map[string]bool{begin.Format("2006-01"): true, begin.Add((hours - 1) * time.Hour).Format("2006-01"): true}
	counted := map[string]int{}
	for month := range months {
		var r reconcile.Report
		out := must(t, append(flags, "reconcile", "--month", month, "--output", "json")...)
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			t.Fatalf("%v in %s", err, out)
		}
		for _, x := range r.Steps {
			var n int
			if kind, what, _ := strings.Cut(x.What, " "); what == "samples, raw and hourly" && x.Result == reconcile.Holds {
				if _, err := fmt.Sscan(x.Left, &n); err != nil {
					t.Fatal(err)
				}
				counted[kind] += n
			}
		}
	}
	if counted["port"] != len(distinct.Ports) || counted["instance"] != len(distinct.Instances) || counted["disk"] != len(distinct.Disks) {
		t.Errorf("reconciled %v samples; %d of ports, %d of instances and %d of disks were produced", counted, len(distinct.Ports), len(distinct.Instances), len(distinct.Disks))
	}
	if out := must(t, append(flags, "status", "--first-period", "usage")...); !strings.Contains(out, "did not decode") || !strings.Contains(out, "is silent") {
		t.Errorf("status lacks the rejected records or the silent hosts:\n%s", out)
	}
}
