package ingest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/jobs/ingest"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/engine"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// envVictim makes the test binary be an ingest, for tests that kill it. It holds
// the order.
const envVictim = "RATEBATCH_TEST_INGEST"

type order struct {
	DataDir, Database string
	Options           ingest.Options
}

func victim() int {
	var o order
	if err := json.Unmarshal([]byte(os.Getenv(envVictim)), &o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	e, err := engine.Open(ctx, engine.Options{DataDir: o.DataDir, Database: o.Database, Log: log})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	job := &ingest.Job{Store: store.New(e.Conn(), e.Database()), Log: log, Options: o.Options, Now: time.Now}
	_, err = job.Run(ctx, uuid.New())
	if err = errors.Join(err, e.Close()); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return ratebatch.ExitCode(err)
}

// start runs an ingest as a process of its own.
func (p *pipe) start() *exec.Cmd {
	p.Helper()
	options := p.options
	options.Broker.Log = nil
	text, err := json.Marshal(order{p.dataDir, p.store.Database(), options})
	if err != nil {
		p.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		p.Fatal(err)
	}
	c := exec.Command(program)
	c.Env = append(os.Environ(), envVictim+"="+string(text))
	log, err := os.Create(fmt.Sprintf("%s/%d.log", p.TempDir(), time.Now().UnixNano()))
	if err != nil {
		p.Fatal(err)
	}
	defer log.Close()
	c.Stderr = log
	if err := c.Start(); err != nil {
		p.Fatal(err)
	}
	return c
}
