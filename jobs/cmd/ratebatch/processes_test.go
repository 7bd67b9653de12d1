package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// process is the program in a process of its own, on the tests' engine.
func (b *billed) process(args ...string) (*exec.Cmd, *bytes.Buffer) {
	b.Helper()
	executable, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	var output bytes.Buffer
	cmd := exec.CommandContext(context.WithoutCancel(b.Context()), executable, append(append([]string{}, b.flags...), args...)...)
	cmd.Env = append(os.Environ(), envProgram+"=1")
	cmd.Stdout, cmd.Stderr = &output, &output
	return cmd, &output
}

// Two, four and eight processes started at once, whose shares of the scopes
// overlap so that no lease keeps them apart, with usage arriving meanwhile: in
// the end each usage row is billed exactly once.
func TestProcessesAtOnceBillEachRowOnce(t *testing.T) {
	b := newBilled(t)
	shards := []string{"0/1", "0/2", "1/2", "0/3", "1/3", "2/3", "0/4", "1/4"}
	arrived := 0
	for _, n := range []int{2, 4, 8} {
		if n > 2 { // everything is due once more
			b.must("reset", "--all", "--to", "2026-11-30T20:00:00Z", "--reason", "x", "--yes")
		}
		stop := make(chan struct{})
		var arriving sync.WaitGroup
		random := rand.New(rand.NewPCG(uint64(n), 2))
		arriving.Go(func() {
			for range 20 { // then the processes have peace and end, on slow machines too
				select {
				case <-stop:
					return
				case <-time.After(200 * time.Millisecond):
					arrived++
					b.sql(fmt.Sprintf(`INSERT INTO instance_metrics_hourly (bucket, region, instance_uuid, project_id, flavor_name, vcpus, samples, covered_seconds)
						VALUES (toDateTime('2026-11-30 20:00:00', 'UTC') + 3600 * %d, 'one', '00000000-0000-0000-0002-%012d', '%s', 'm1', 1, 60, 3600)`, random.IntN(6), arrived, []string{"beta", "gamma", "delta"}[arrived%3]))
				}
			}
		})
		var running []*exec.Cmd
		var outputs []*bytes.Buffer
		for i := range n {
			cmd, output := b.process("rate", "--now", at, "--first-period", "usage", "--late", "reprocess", "--shard", shards[i])
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			running, outputs = append(running, cmd), append(outputs, output)
		}
		done := 0
		for i, cmd := range running {
			_ = cmd.Wait() // its exit code says it
			switch code := cmd.ProcessState.ExitCode(); code {
			case ratebatch.ExitDone:
				done++
			case ratebatch.ExitTryAgain, ratebatch.ExitLeaseHeld: // usage arrived all the time, or another process was first
			default:
				t.Errorf("process %d of %d: exit %d\n%s", i, n, code, outputs[i])
			}
		}
		close(stop)
		arriving.Wait()
		// alpha's usage never changes: whatever became of the others, it is rated.
		if got := b.text("SELECT toString(count()) FROM current_commits WHERE scope = 'alpha' AND kind = 'rated'"); got != "6" {
			t.Errorf("%d processes at once: %s periods of alpha are rated while others change, want 6", n, got)
		}
		b.rate("--late", "reprocess")
		if got, want := b.text("SELECT toString(sum(price)) FROM rated WHERE metric = 'instance'"), fmt.Sprint(9+arrived); got != want {
			t.Errorf("%d processes at once: owed %s, want %s", n, got, want)
		}
		if got := b.text("SELECT toString(count() - uniqExact(scope, begin, metric, resource, attributes)) FROM rated"); got != "0" {
			t.Errorf("%s lines count twice", got)
		}
		t.Logf("%d processes at once, %d of them done, %d rows arrived in all", n, done, arrived)
	}
}

// A schedule whose run was killed is pending at once, and its run interrupted: the
// list follows the lease, not what the dead wrote last.
func TestAKilledRunIsNotRunningForEver(t *testing.T) {
	b := newBilled(t)
	b.rate()
	b.must("reprocess", "add", "--scope", "alpha", "--from", "2026-11-30T20:00:00Z", "--to", "2026-12-01T02:00:00Z", "--now", at, "--reason", "x")
	var process *exec.Cmd
	var meanwhile string
	proxy := killer(t, b.e, "INSERT INTO rated_lines", func() {
		meanwhile = b.must("reprocess", "list")
		_ = process.Process.Kill()
	})
	auth := b.e.ClientOptions().Auth
	proxy.User = url.UserPassword(auth.Username, auth.Password)
	there := &billed{T: t, flags: []string{"--clickhouse", proxy.String(), "--database", b.e.Database()}}
	process, output := there.process("reprocess", "run", "--now", at)
	if err := process.Run(); err == nil || process.ProcessState.ExitCode() != -1 {
		t.Fatalf("the run was not killed: %v\n%s", err, output)
	}
	if !strings.Contains(meanwhile, "running") {
		t.Errorf("while it runs:\n%s", meanwhile)
	}
	list := b.must("reprocess", "list")
	if !strings.Contains(list, "pending") || strings.Contains(list, "running") || !strings.Contains(list, fmt.Sprintf("interrupted: pid %d on ", process.Process.Pid)) {
		t.Errorf("after it was killed:\n%s", list)
	}
	var x status
	b.json(&x, "status", "--now", at)
	for _, j := range x.Jobs {
		if j.Job == "reprocess" && (j.State != "interrupted" || !strings.Contains(j.Error, "is gone")) {
			t.Errorf("status says of the killed run: %+v", j)
		}
	}
	if len(x.Schedules) != 1 || x.Schedules[0].State != store.SchedulePending {
		t.Errorf("status says of its schedule: %+v", x.Schedules)
	}
	b.must("reprocess", "run", "--now", at)
	if list := b.must("reprocess", "list", "--all"); !strings.Contains(list, "done") || strings.Contains(list, "interrupted") {
		t.Errorf("after the next run:\n%s", list)
	}
	b.owe("alpha 6, beta 3")
}

// slowMetrics reads a view whose rows take their time.
const slowMetrics = `metrics:
  instance:
    unit: instance
    table: slow
    time: bucket
    scope_key: project_id
    region_key: region
    resource: instance_uuid
    quantity: sum
    value: vcpus
`

// A run that is interrupted, or runs out of its time, ends what it runs on the
// server, and is interrupted, not failed. So is a schedule: it is pending again.
func TestAnInterruptedRunEndsItsQuery(t *testing.T) {
	b := newBilled(t)
	b.sql("CREATE OR REPLACE VIEW slow AS SELECT bucket, region, project_id, instance_uuid, toInt64(vcpus) AS vcpus FROM instance_metrics_hourly")
	t.Cleanup(func() {
		if err := b.e.Conn().Exec(context.WithoutCancel(t.Context()), "DROP VIEW IF EXISTS slow"); err != nil {
			t.Error(err)
		}
	})
	file := filepath.Join(t.TempDir(), "metrics.yaml")
	if err := os.WriteFile(file, []byte(slowMetrics), 0o600); err != nil {
		t.Fatal(err)
	}
	b.must("metrics", "apply", file)
	b.rate()
	b.owe("alpha 6, beta 6")
	b.sql("CREATE OR REPLACE VIEW slow AS SELECT bucket, region, project_id, instance_uuid, toInt64(vcpus) + toInt64(sleepEachRow(1.0)) AS vcpus FROM instance_metrics_hourly")
	running := func() string {
		return b.text("SELECT toString(count()) FROM system.processes WHERE query LIKE '%INSERT INTO pass_periods%' AND query NOT LIKE '%system.processes%'")
	}
	wait := func(what, want string) {
		t.Helper()
		for range 200 {
			if running() == want {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Fatalf("%s: %s statements of the run are on the server, want %s", what, running(), want)
	}
	interrupt := func(args ...string) {
		t.Helper()
		cmd, output := b.process(args...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		wait("before the interrupt", "1")
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // its exit code says it
		if code := cmd.ProcessState.ExitCode(); code != ratebatch.ExitInterrupted {
			t.Errorf("exit %d, want %d\n%s", code, ratebatch.ExitInterrupted, output)
		}
		if n := running(); n != "0" {
			t.Errorf("%s statements of the interrupted run are still on the server", n)
		}
	}
	state := func(job string) string {
		return b.text("SELECT argMax(toString(state), written_at) FROM job_runs WHERE job = '" + job + "'")
	}
	whole := []string{"--from", "2026-11-30T20:00:00Z", "--to", "2026-12-01T02:00:00Z", "--now", at, "--reason", "x"}
	b.must(append([]string{"reprocess", "add", "--scope", "alpha"}, whole...)...)
	interrupt("reprocess", "run", "--now", at)
	if got := state("reprocess"); got != "interrupted" {
		t.Errorf("the run log says %s", got)
	}
	if list := b.must("reprocess", "list"); !strings.Contains(list, "pending") || strings.Contains(list, "running") || strings.Contains(list, "cancel") {
		t.Errorf("reprocess list:\n%s", list)
	}
	b.must("reset", "--scope", "beta", "--to", "2026-11-30T20:00:00Z", "--reason", "x", "--yes")
	interrupt("rate", "--now", at)
	if got := state("rate"); got != "interrupted" {
		t.Errorf("the run log says %s", got)
	}
	code, _, stderr := cli(t, append(append([]string{}, b.flags...), "rate", "--now", at, "--timeout", "1s")...)
	if code != ratebatch.ExitTryAgain || !strings.Contains(stderr, "did not end within --timeout 1s") || running() != "0" || state("rate") != "interrupted" {
		t.Errorf("timeout: exit %d, %s; %s statements are still on the server, the run log says %s", code, stderr, running(), state("rate"))
	}
	if status := b.must("status", "--now", at); !strings.Contains(status, "interrupted") {
		t.Errorf("status:\n%s", status)
	}
	b.sql("CREATE OR REPLACE VIEW slow AS SELECT bucket, region, project_id, instance_uuid, toInt64(vcpus) AS vcpus FROM instance_metrics_hourly")
	b.rate()
	b.must("reprocess", "run", "--now", at)
	b.owe("alpha 6, beta 6")
}
