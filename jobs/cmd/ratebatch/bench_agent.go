package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ratebatch/ratebatch/agent/wire"
	"github.com/ratebatch/ratebatch/fixtures/bench"
	"github.com/ratebatch/ratebatch/fixtures/devkafka"
	"github.com/ratebatch/ratebatch/fixtures/libvirtpeer"
	"github.com/ratebatch/ratebatch/jobs"
	"github.com/ratebatch/ratebatch/ratebatch"
)

// benchAgent measures the real agent, a process of its own, against peers that
// answer as libvirtd does: what a poll of 500 domains costs, whether anything
// grows, and how long 200 hosts keep one agent.
func benchAgent(ctx context.Context, _ *program, dir string, size benchSize) ([]bench.Figure, error) {
	polls := min(size.hours/8, 30) // one a second
	figures, err := benchAgentHost(ctx, filepath.Join(dir, "host"), 500, polls)
	if err != nil {
		return nil, err
	}
	many, err := benchAgentHosts(ctx, filepath.Join(dir, "hosts"), 200)
	return append(figures, many...), err
}

// agentRun is an agent under measurement.
type agentRun struct {
	cmd    *exec.Cmd
	log    agentLog
	listen string
}

// agentLog takes a process's log while others read it.
type agentLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *agentLog) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *agentLog) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// startAgent runs the binary beside this one.
func startAgent(ctx context.Context, dir, config string) (*agentRun, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	binary := filepath.Join(filepath.Dir(self), "ratebatch-agent")
	if _, err := os.Stat(binary); err != nil {
		return nil, &ratebatch.ConfigError{Err: err, Hint: "the benchmark measures the real agent: build it with 'make agent'"}
	}
	file := filepath.Join(dir, "agent.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	a := &agentRun{cmd: exec.CommandContext(ctx, binary, "run", "--config", file)}
	a.cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	a.cmd.Stderr = &a.log
	a.cmd.Cancel = func() error { return a.cmd.Process.Signal(syscall.SIGTERM) }
	a.cmd.WaitDelay = 20 * time.Second
	if err := a.cmd.Start(); err != nil {
		return nil, err
	}
	served := regexp.MustCompile(`address=(\S+)`)
	err = waitUntil(ctx, 20*time.Second, func() bool {
		if m := served.FindStringSubmatch(a.log.String()); m != nil {
			a.listen = m[1]
		}
		return a.listen != ""
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the agent does not start: %w: %s", err, a.log.String()), a.stop())
	}
	return a, nil
}

func (a *agentRun) stop() error {
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := a.cmd.Wait(); err != nil {
		return fmt.Errorf("the agent: %w: %s", err, a.log.String())
	}
	return nil
}

// metrics reads the agent's figures by their names with labels.
func (a *agentRun) metrics(ctx context.Context) (map[string]float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+a.listen+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	out := map[string]float64{}
	for _, line := range strings.Split(string(text), "\n") {
		name, value, ok := strings.Cut(line, " ")
		if n, err := strconv.ParseFloat(value, 64); ok && err == nil && !strings.HasPrefix(line, "#") {
			out[name] = n
		}
	}
	return out, nil
}

// peak is the most memory that the process ever had, in MB.
func (a *agentRun) peak() (float64, error) {
	kib, err := processPeak(a.cmd.Process.Pid)
	return float64(kib) * 1024 / 1e6, err
}

func waitUntil(ctx context.Context, limit time.Duration, ok func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for !ok() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
	}
	return nil
}

// benchBroker starts a broker with the three topics.
func benchBroker(ctx context.Context) (*devkafka.Broker, error) {
	broker, err := devkafka.Start(devkafka.Options{})
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(broker.Address()))
	if err != nil {
		broker.Close()
		return nil, err
	}
	defer client.Close()
	topics := wire.DefaultTopics()
	if _, err := kadm.NewClient(client).CreateTopics(ctx, 3, 1, nil, topics.All()...); err != nil {
		broker.Close()
		return nil, err
	}
	return broker, nil
}

// benchAgentHost polls one host every second, which is sixty times as often as
// usual, so that little is left of what happens beside polls.
func benchAgentHost(ctx context.Context, dir string, domains, polls int) (figures []bench.Figure, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	peer, err := libvirtpeer.Start(libvirtpeer.Options{Domains: domains})
	if err != nil {
		return nil, err
	}
	defer peer.Close()
	broker, err := benchBroker(ctx)
	if err != nil {
		return nil, err
	}
	defer broker.Close()
	a, err := startAgent(ctx, dir, fmt.Sprintf("interval: 1\nhostname: bench\nstate_dir: %s\nlisten: 127.0.0.1:0\novn: {disabled: true}\nkafka: {bootstrap_servers: '%s'}\nlibvirt: {uri: '%s'}\n",
		filepath.Join(dir, "state"), broker.Address(), peer.URI()))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, a.stop()) }()
	const good = `ratebatch_agent_polls_total{host="bench",result="ok"}`
	var before, after map[string]float64
	wait := func(n float64) (m map[string]float64, err error) {
		waitErr := waitUntil(ctx, time.Duration(n)*3*time.Second+time.Minute, func() bool {
			if sleepErr := jobs.Sleep(ctx, 2*time.Second); sleepErr != nil {
				err = sleepErr // asking costs the agent something too, so it is not asked often
			} else {
				peer.Advance(2 * time.Second)
				m, err = a.metrics(ctx)
			}
			return err != nil || m[good] >= n
		})
		return m, errors.Join(err, waitErr)
	}
	// The first polls read each domain's XML and warm up what stays.
	if before, err = wait(5); err != nil {
		return nil, err
	}
	if after, err = wait(before[good] + float64(polls)); err != nil {
		return nil, err
	}
	if after["ratebatch_agent_delivery_failures_total"] > 0 || after["ratebatch_agent_delivered_records_total"] < float64(polls*domains*4) {
		return nil, fmt.Errorf("the agent delivered %v records in %d polls", after["ratebatch_agent_delivered_records_total"], polls)
	}
	done := after[good] - before[good]
	cpu := 1000 * (after["process_cpu_seconds_total"] - before["process_cpu_seconds_total"]) / done
	peak, err := a.peak()
	if err != nil {
		return nil, err
	}
	n := int(done)
	return []bench.Figure{
		{Name: "agent_cpu_per_poll_500", Value: cpu, Unit: "ms", Limit: 60, Runs: n},
		{Name: "agent_peak_memory_500", Value: peak, Unit: "MB", Limit: 40, Runs: n},
		// Plus one each, because a limit of 0 means that nothing is promised.
		{Name: "agent_descriptors_grown", Value: 1 + max(0, after["process_open_fds"]-before["process_open_fds"]), Unit: "1 + descriptors", Limit: 3, Runs: n},
		{Name: "agent_goroutines_grown", Value: 1 + max(0, after["go_goroutines"]-before["go_goroutines"]), Unit: "1 + goroutines", Limit: 6, Runs: n},
	}, nil
}

// benchAgentHosts polls many hosts of 20 domains, whose libvirtds take their
// usual 5.5 ms for each.
func benchAgentHosts(ctx context.Context, dir string, hosts int) (figures []bench.Figure, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	broker, err := benchBroker(ctx)
	if err != nil {
		return nil, err
	}
	defer broker.Close()
	const interval = 10
	var nodes strings.Builder
	for i := range hosts {
		peer, err := libvirtpeer.Start(libvirtpeer.Options{Domains: 20, PerDomain: 5500 * time.Microsecond})
		if err != nil {
			return nil, err
		}
		defer peer.Close()
		peer.Edit(func(domains []*libvirtpeer.Domain) {
			for _, d := range domains {
				d.UUID[0], d.UUID[1] = byte(i), byte(i>>8)
			}
		})
		fmt.Fprintf(&nodes, "  - {host: host-%d, libvirt_uri: '%s'}\n", i, peer.URI())
	}
	a, err := startAgent(ctx, dir, fmt.Sprintf("interval: %d\nstate_dir: %s\nlisten: 127.0.0.1:0\novn: {disabled: true}\nkafka: {bootstrap_servers: '%s'}\nnodes:\n%s",
		interval, filepath.Join(dir, "state"), broker.Address(), nodes.String()))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, a.stop()) }()
	var m map[string]float64
	count := func(kind string) (n int, last float64) {
		for name, value := range m {
			if strings.HasPrefix(name, kind) && value > 0 {
				n++
				last = max(last, math.Mod(value, interval))
			}
		}
		return n, last
	}
	// Twice, so that connecting is not a part of it.
	var slowest float64
	for range 2 {
		if err := sleepUntilNext(ctx, interval*time.Second); err != nil {
			return nil, err
		}
		if err := jobs.Sleep(ctx, 7*time.Second); err != nil {
			return nil, err
		}
		if m, err = a.metrics(ctx); err != nil {
			return nil, err
		}
		var n int
		if n, slowest = count("ratebatch_agent_last_poll_timestamp_seconds"); n != hosts {
			return nil, fmt.Errorf("%d of %d hosts were polled: %s", n, hosts, a.log.String())
		}
	}
	peak, err := a.peak()
	if err != nil {
		return nil, err
	}
	return []bench.Figure{
		{Name: "agent_200_hosts", Value: slowest, Unit: "s until the last answer", Limit: 5, Runs: 1},
		{Name: "agent_peak_memory_200_hosts", Value: peak, Unit: "MB", Runs: 1},
	}, nil
}

func sleepUntilNext(ctx context.Context, interval time.Duration) error {
	now := time.Now()
	return jobs.Sleep(ctx, now.Truncate(interval).Add(interval).Sub(now))
}
