package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Whatever the umask of whoever starts the jobs, nobody else can write what they
// write; state, engine data and dumps are the owner's alone; and what others are
// to read (exports, units, metrics) they can, unless the umask forbids it. The
// textfile collector runs as another user by design, so metrics stay readable.
func TestModesOfEverythingThatIsWritten(t *testing.T) {
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	plan, err := filepath.Abs("../../../fixtures/plans/demo.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, umask := range []string{"000", "077"} {
		t.Run("umask "+umask, func(t *testing.T) {
			dir := t.TempDir()
			in := func(name string) string { return filepath.Join(dir, name) }
			if err := os.Mkdir(in("prom"), 0o755); err != nil {
				t.Fatal(err)
			}
			with := func(args ...string) *exec.Cmd {
				cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "sh", append([]string{"-c", `umask ` + umask + `; exec "$0" "$@"`, executable, "--data", in("data/billing")}, args...)...)
				cmd.Env = append(os.Environ(), envProgram+"=1")
				return cmd
			}
			// One engine beside them saves the others a start each; what it writes, it
			// writes under the same umask.
			serve := with("engine", "serve")
			if err := serve.Start(); err != nil {
				t.Fatal(err)
			}
			stop := sync.OnceFunc(func() {
				_ = serve.Process.Signal(syscall.SIGTERM)
				if err := serve.Wait(); err != nil {
					t.Errorf("engine serve: %v", err)
				}
			})
			t.Cleanup(stop)
			eventually(t, "engine", func() bool {
				_, err := os.Stat(in("data/billing/engine/endpoint.json"))
				return err == nil
			})
			for _, args := range [][]string{
				{"migrate", "--retention", "40y"},
				{"simulate", "--instances", "3", "--projects", "3", "--hours", "2", "--begin", "2026-10-01", "--tiers"},
				{"watermark", "--region", "RegionOne", "--until", "2026-10-02"},
				{"plan", "apply", plan},
				{"rate", "--now", "2026-10-02T06:00:00Z", "--first-period", "usage", "--metrics-dir", in("prom")},
				{"plan", "simulate", plan, "--month", "2026-10", "--csv", in("prices.csv"), "--svg", in("prices.svg")},
				{"export", "--month", "2026-10", "--to", in("out/rated"), "--partial", "--dataset", "lines,focus,statement", "--first-period", "usage"},
				{"engine", "dump", in("dump")},
				{"schedule", "render", "systemd", "--out", in("units")},
				{"man", "--out", in("man")},
			} {
				if out, err := with(args...).CombinedOutput(); err != nil {
					t.Fatalf("%v: %v\n%s", args, err, out)
				}
			}
			stop()
			shared := os.FileMode(0o755)
			if umask == "077" {
				shared = 0o700
			}
			seen := map[string]int{}
			err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
				if err != nil || path == dir {
					return err
				}
				info, err := d.Info()
				if err != nil {
					return err
				}
				if info.Mode()&os.ModeSymlink != 0 {
					return nil // has no modes; ClickHouse names its folders by them
				}
				name, _ := filepath.Rel(dir, path)
				top, _, _ := strings.Cut(name, "/")
				seen[fmt.Sprintf("%s %s", top, info.Mode())]++
				most, least := shared, shared
				switch top {
				case "data", "dump":
					most, least = 0o700, 0o400
				case "prom":
					most, least = 0o755, 0o755
				}
				if !d.IsDir() {
					most, least = most&^0o111, least&^0o111
				}
				if mode := info.Mode().Perm(); mode&^most != 0 || mode&least != least {
					t.Errorf("%s is %s: want %s at most and %s at least", name, info.Mode(), most, least)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, top := range []string{"data", "dump", "out", "units", "man", "prom", "prices.csv", "prices.svg"} {
				if _, err := os.Stat(in(top)); err != nil {
					t.Errorf("nothing was written: %v", err)
				}
			}
			t.Log(seen)
		})
	}
}
