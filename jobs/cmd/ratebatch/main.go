// Command ratebatch rates what a cloud's virtual machines used and says what
// each project owes. It is a set of batch jobs for cron, systemd timers and
// Kubernetes CronJobs; see README.md.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // billing time zones, also where the machine has none

	"github.com/ratebatch/ratebatch/ratebatch/engine"
)

func main() {
	engine.ServeIfChild()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
