package main

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// shardPlan has what looks back in the month: tiers of both kinds, a discount, a
// minimum and a cap.
const shardPlan = `
currency: EUR
services:
  - name: instance
    tiers: [{id: hours, free: "1.25", steps: [{up_to: "2.5", cost: "2"}, {cost: "1"}]}]
  - name: vcpu
    tiers: [{id: cores, kind: volume, per: resource, steps: [{up_to: "3", cost: "0.5"}, {cost: "0.25"}]}]
discounts:
  - {percent: "10", metric: vcpu, id: partner}
charges:
  - {kind: minimum, amount: "3", id: least}
  - {kind: cap, amount: "4", scope: alpha, id: most}
`

// Three shards in processes at once rate what one run rates, each scope once,
// also where a month with tiers has to be added up again. A shard has a lease and
// a line in status of its own.
func TestShardsInProcessesEqualOneRun(t *testing.T) {
	b := newBilled(t)
	begin := func() {
		b.begin(faultJob{plan: shardPlan, prepare: func(b *billed) {
			for i := range 10 {
				b.usage(fmt.Sprintf("scope-%d", i), "2026-11-30 20:00:00", 6, fmt.Sprint(600*(i+1)), "2026-11-28 00:00:00")
			}
		}})
	}
	// 21:00 is a hole again and has other usage: the later hours rest on it.
	late := func() {
		b.sql("ALTER TABLE instance_metrics_hourly DELETE WHERE bucket = '2026-11-30 21:00:00' SETTINGS mutations_sync = 2")
		for i := range 10 {
			b.usage(fmt.Sprintf("scope-%d", i), "2026-11-30 21:00:00", 1, "3600", "2026-11-28 00:00:00")
		}
		b.usage("alpha", "2026-11-30 21:00:00", 1, "600", "2026-11-28 00:00:00")
		b.sql("ALTER TABLE period_commits DELETE WHERE begin = '2026-11-30 21:00:00' SETTINGS mutations_sync = 2")
	}
	begin()
	b.rate()
	first := b.outcome()
	late()
	b.rate()
	want := b.outcome()
	for _, line := range []string{"adjustment", "discount", "minimum", "cap"} {
		if !strings.Contains(first, " "+line+" ") {
			t.Errorf("the case has no line of %s:\n%s", line, first)
		}
	}
	shards := func() int {
		t.Helper()
		var running []*exec.Cmd
		var outputs []*bytes.Buffer
		for i := range 3 {
			cmd, output := b.process("rate", "--now", at, "--first-period", "usage", "--output", "json", "--shard", fmt.Sprintf("%d/3", i))
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			running, outputs = append(running, cmd), append(outputs, output)
		}
		scopes := 0
		for i, cmd := range running {
			if err := cmd.Wait(); err != nil {
				t.Errorf("shard %d: %v\n%s", i, err, outputs[i])
				continue
			}
			text := outputs[i].String()
			r := rateJSON(t, text[strings.Index(text, "{"):])
			if r.Scopes == 0 {
				t.Errorf("shard %d has no scope", i)
			}
			scopes += r.Scopes
		}
		return scopes
	}
	begin()
	if n := shards(); n != 12 {
		t.Errorf("the shards rated %d scopes, want each of the 12 once", n)
	}
	if got := b.outcome(); got != first {
		t.Errorf("shards gave\n%s\nwant\n%s", got, first)
	}
	late()
	shards()
	if got := b.outcome(); got != want {
		t.Errorf("shards that filled a hole gave\n%s\nwant\n%s", got, want)
	}
	if r := b.rate(); r.Periods != 0 {
		t.Errorf("%d periods were left", r.Periods)
	}
	status := b.must("status", "--now", at)
	for i := range 3 {
		if !strings.Contains(status, fmt.Sprintf("rate %d/3", i)) {
			t.Errorf("status does not show shard %d:\n%s", i, status)
		}
	}
	held := store.Params{"name": "rate 1/3", "holder": "elsewhere boot 1 1 run", "state": "claimed", "claimed_at": time.Now()}
	if err := b.s.Exec(t.Context(), "lease_beat", held); err != nil {
		t.Fatal(err)
	}
	b.fails(ratebatch.ExitConfig, "0/4", "rate", "--shard", "4/4")
	b.fails(ratebatch.ExitLeaseHeld, "another run holds the lease", "rate", "--shard", "1/3", "--now", at)
	b.must("rate", "--shard", "2/3", "--now", at)
	b.must("rate", "--now", at)
}
