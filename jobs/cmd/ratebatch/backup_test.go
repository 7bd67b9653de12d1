package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ratebatch/ratebatch/exporter/bucket/buckettest"
	"github.com/ratebatch/ratebatch/ratebatch/engine"
)

// envClient makes the test binary be clickhouse-client, as the scripts in
// deploy/clickhouse call it: it sends what it reads to the embedded engine in the
// folder that the variable names.
const envClient = "RATEBATCH_TEST_CLICKHOUSE_CLIENT"

func clickhouseClient(ctx context.Context, dir string) int {
	err := func() error {
		text, err := io.ReadAll(os.Stdin)
		if err != nil {
			return err
		}
		e, err := engine.Open(ctx, engine.Options{DataDir: dir, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		if strings.HasPrefix(string(text), "SELECT ") {
			var answer uint64
			err = e.Conn().QueryRow(ctx, string(text)).Scan(&answer)
			fmt.Println(answer)
		} else {
			err = e.Conn().Exec(e.WithFileAccess(ctx), string(text))
		}
		_ = e.Close() // the statement's outcome is what counts
		return err
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// The scripts for real: the state is backed up to an S3 server, a database that
// is lost is restored into an empty engine, and what the run book says comes
// after shows that nothing is missing and nothing is billed twice.
func TestBackupAndRestoreOfTheState(t *testing.T) {
	withoutVariables(t)
	s3 := buckettest.Start(t)
	b := newBilled(t)
	b.rate()
	files := t.TempDir()
	b.must("close", "--month", "2026-11", "--now", at)
	b.must("export", "--month", "2026-11", "--to", files)
	want := totals(t, b.e)

	bin := t.TempDir()
	if err := os.Symlink(os.Args[0], filepath.Join(bin, "clickhouse-client")); err != nil {
		t.Fatal(err)
	}
	script := func(name, data, place string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "sh", "../../../deploy/clickhouse/"+name, place)
		cmd.Env = append(os.Environ(), envClient+"="+data, "PATH="+bin+":"+os.Getenv("PATH"), "CLICKHOUSE_DATABASE="+b.e.Database(), "CLICKHOUSE_PASSWORD=unused")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
	}
	place := fmt.Sprintf("S3('%s/finance/state', 'test', 'testsecret')", s3.URL)
	script("backup.sh", b.flags[1], place)

	lost := t.TempDir()
	e, err := engine.Open(t.Context(), engine.Options{DataDir: lost, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	script("restore.sh", lost, place)
	flags := []string{"--data", lost, "--database", b.e.Database()}
	restored := func(args ...string) string {
		t.Helper()
		return must(t, append(append([]string{}, flags...), args...)...)
	}
	made := restored("migrate", "--output", "json")
	for _, want := range []string{"port_samples", "instance_samples", "disk_samples", "port_volume_5min_refresh", "instance_metrics_hourly_refresh"} {
		if !strings.Contains(made, want) {
			t.Errorf("migrate does not make %s again: %s", want, made)
		}
	}
	o := engine.Options{DataDir: lost, Database: b.e.Database(), Log: slog.New(slog.DiscardHandler)}
	r, err := engine.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if got := totals(t, r); got != want {
		t.Errorf("restored %s, want %s", got, want)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	restored("reconcile", "--month", "2026-11", "--files", files)
	if out := restored("rate", "--now", at); !strings.Contains(out, "nothing is due") {
		t.Errorf("after the restore: %s", out)
	}
	if code, findings := doctorFindings(t, append(append([]string{}, flags...), "doctor")...); code != 0 {
		t.Errorf("the doctor says %+v", findings)
	}
}
