package main

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/ratebatch/ratebatch/agent"
	"github.com/ratebatch/ratebatch/agent/spool"
)

// lastWords is how long a stopping agent tries to deliver what it has; the
// spool keeps the rest.
const lastWords = 5 * time.Second

// run meters until a signal comes.
func (p *program) run(ctx context.Context) error {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	a, err := p.build(ctx, func(spools map[string]*spool.Spool) *agent.Metrics { return agent.NewMetrics(registry, spools) })
	if err != nil {
		return err
	}
	defer a.close()
	var running sync.WaitGroup
	defer running.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if p.config.Listen != "" {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", p.config.Listen)
		if err != nil {
			return configError{fmt.Errorf("listen: %w", err)}
		}
		running.Go(func() { serve(ctx, listener, registry, a.health, p.log) })
		p.log.InfoContext(ctx, "metrics and health are served", "address", listener.Addr().String())
	}
	var hosts sync.WaitGroup
	for _, h := range a.hosts {
		hosts.Go(func() { h.Run(ctx) })
	}
	running.Go(func() { a.publisher.Run(ctx) })
	running.Go(func() { p.watchdog(ctx, a) })
	if len(a.hosts) == 1 {
		running.Go(func() { limitMemory(ctx, time.Second) })
	}
	p.notify(ctx, daemon.SdNotifyReady)
	p.log.InfoContext(ctx, "the agent runs", "version", version, "hosts", len(a.hosts), "interval", time.Duration(p.config.Interval), "brokers", p.config.Kafka.BootstrapServers)
	<-ctx.Done()
	p.notify(ctx, daemon.SdNotifyStopping)
	hosts.Wait()
	stop()
	running.Wait()
	// The readings and records are safe on disk; what a healthy broker takes at
	// once need not wait for the next start.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	defer cancel()
	if err := a.publisher.Drain(last); err != nil {
		p.log.WarnContext(ctx, "not everything was delivered; the spool keeps it for the next start", "error", err)
	}
	p.log.InfoContext(ctx, "the agent has stopped")
	return nil
}

// notify tells systemd, where it listens.
func (p *program) notify(ctx context.Context, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		p.log.WarnContext(ctx, "systemd was not told", "state", state, "error", err)
	}
}

// watchdog tells systemd that the loops turn, as long as they do. A hypervisor
// or broker that is away is no reason to restart the agent, a loop that stands is.
func (p *program) watchdog(ctx context.Context, a *assembly) {
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil || every == 0 {
		return
	}
	limit := 3*time.Duration(p.config.Interval) + 3*time.Duration(p.config.CommandTimeout) + 2*time.Minute
	tick := time.NewTicker(every / 3)
	defer tick.Stop()
	for {
		if stuck := a.stuck(limit); stuck == "" {
			p.notify(ctx, daemon.SdNotifyWatchdog)
		} else {
			p.log.ErrorContext(ctx, "a loop stands still; systemd will restart the agent", "loop", stuck)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// stuck names a loop that has not turned for too long.
func (a *assembly) stuck(limit time.Duration) string {
	for _, h := range a.hosts {
		if loop, _ := h.Health(); loop > limit {
			return "polls of " + h.Name()
		}
	}
	if a.publisher.Health() > limit {
		return "publisher"
	}
	return ""
}
