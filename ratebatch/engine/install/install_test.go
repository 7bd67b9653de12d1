package install

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch"
)

// tarball makes a package as npm pack does, and its integrity.
func tarball(t *testing.T, names ...string) (path, integrity string) {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, name := range names {
		body := []byte("the content of " + name)
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(body)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(body); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "package.tgz")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	sum := sha512.Sum512(b.Bytes())
	return path, "sha512-" + base64.StdEncoding.EncodeToString(sum[:])
}

var goodMachine = Machine{OS: "linux", Arch: "amd64", Libc: "glibc", Glibc: "2.36"}

func options(t *testing.T) Options {
	t.Helper()
	return Options{
		Folder:    filepath.Join(t.TempDir(), "cache", "engine"),
		Machine:   func() Machine { return goodMachine },
		FreeSpace: func(string) (int64, error) { return 10 << 30, nil },
	}
}

// npm puts a program of that name first in PATH.
func npm(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if script != "" {
		if err := os.WriteFile(filepath.Join(dir, "npm"), []byte("#!/bin/sh\n"+script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	if script == "" {
		t.Setenv("PATH", dir)
	}
}

// toDestination copies a file where 'npm pack PACKAGE --pack-destination DIR' puts it.
const toDestination = `cp "$TARBALL" "$4/package.tgz"`

func leftovers(t *testing.T, folder string) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(folder, stagingPrefix+"*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestInstallFromTarball(t *testing.T) {
	o := options(t)
	o.From, o.Integrity = tarball(t, "package/index.js", "package/libchdb.so")
	steps := map[string]bool{}
	o.Progress = func(step string, _, _ int64) { steps[step] = true }
	path, installed, err := Run(t.Context(), o)
	if err != nil || !installed {
		t.Fatal(installed, err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "the content of package/libchdb.so" {
		t.Errorf("%q %v", text, err)
	}
	if !steps["verify"] || !steps["unpack"] {
		t.Errorf("steps told: %v", steps)
	}
	leftovers(t, o.Folder)
	// It is there, so nothing is read again.
	o.From = "/nowhere"
	if again, installed, err := Run(t.Context(), o); err != nil || installed || again != path {
		t.Errorf("the second time: %s %v %v", again, installed, err)
	}
	o.Force = true
	if _, _, err := Run(t.Context(), o); ratebatch.ExitCode(err) != ratebatch.ExitConfig {
		t.Errorf("--force with a missing tarball: %v", err)
	}
}

func TestInstallWithNPM(t *testing.T) {
	o := options(t)
	var file string
	file, o.Integrity = tarball(t, "package/libchdb.so")
	t.Setenv("TARBALL", file)
	npm(t, `[ "$1 $2" = "pack `+Package+"@"+Version+`" ] || exit 9; `+toDestination)
	// What a killed installation left is cleaned up.
	if err := os.MkdirAll(filepath.Join(o.Folder, stagingPrefix+"old", "npm"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, installed, err := Run(t.Context(), o); err != nil || !installed {
		t.Fatal(installed, err)
	}
	leftovers(t, o.Folder)
}

func TestInstallErrors(t *testing.T) {
	good, integrity := tarball(t, "package/libchdb.so")
	other, otherIntegrity := tarball(t, "package/index.js")
	cut := filepath.Join(t.TempDir(), "cut.tgz")
	text, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(cut, text[:len(text)-10], 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	machine := func(m Machine) func(*Options) { return func(o *Options) { o.Machine = func() Machine { return m } } }
	for name, tt := range map[string]struct {
		npm    string
		change func(*Options)
		code   int
		want   []string
	}{
		"no npm":                {"", nil, ratebatch.ExitConfig, []string{"npm", "--from"}},
		"no network":            {"echo 'npm error code ENOTFOUND' >&2; echo 'npm error network request failed' >&2; exit 1", nil, ratebatch.ExitTryAgain, []string{"cannot reach its registry", "--from"}},
		"a refused connection":  {"echo 'npm error code ECONNREFUSED' >&2; exit 1", nil, ratebatch.ExitTryAgain, []string{"cannot reach its registry"}},
		"a download cut short":  {"echo 'npm error code ECONNRESET' >&2; echo half > $4/package.tgz; exit 1", nil, ratebatch.ExitTryAgain, []string{"cannot reach its registry"}},
		"a missing version":     {"echo 'npm error code ETARGET' >&2; exit 1", nil, ratebatch.ExitConfig, []string{"does not have", Version}},
		"a full disk in npm":    {"echo 'npm error code ENOSPC' >&2; exit 1", nil, ratebatch.ExitConfig, []string{"no space", "XDG_CACHE_HOME"}},
		"npm's own check":       {"echo 'npm error code EINTEGRITY' >&2; exit 1", nil, ratebatch.ExitConfig, []string{"SHA-512"}},
		"something else in npm": {"echo 'npm error code EWEIRD' >&2; echo 'npm error what happened' >&2; exit 1", nil, ratebatch.ExitUnexpected, []string{"EWEIRD", "what happened"}},
		"another package":       {"TARBALL=" + other + "; " + toDestination, nil, ratebatch.ExitConfig, []string{"SHA-512 differs"}},
		"a damaged tarball":     {"", func(o *Options) { o.From = cut }, ratebatch.ExitConfig, []string{"SHA-512 differs", cut}},
		"no such tarball":       {"", func(o *Options) { o.From = "/nowhere.tgz" }, ratebatch.ExitConfig, []string{"/nowhere.tgz", "npm pack"}},
		"a tarball without it":  {"", func(o *Options) { o.From, o.Integrity = other, otherIntegrity }, ratebatch.ExitUnexpected, []string{"holds no libchdb.so"}},
		"a full disk":           {"", func(o *Options) { o.From = good; o.FreeSpace = func(string) (int64, error) { return 100 << 20, nil } }, ratebatch.ExitConfig, []string{"no space", "100 MiB are free"}},
		"a cache that is none":  {"", func(o *Options) { o.From = good; o.Folder = filepath.Join(file, "x") }, ratebatch.ExitUnexpected, []string{"not a directory"}},
		"arm64":                 {"", machine(Machine{OS: "linux", Arch: "arm64", Libc: "glibc", Glibc: "2.36"}), ratebatch.ExitConfig, []string{"arm64", "--clickhouse"}},
		"macOS":                 {"", machine(Machine{OS: "darwin", Arch: "arm64"}), ratebatch.ExitConfig, []string{"darwin", "--clickhouse"}},
		"musl":                  {"", machine(Machine{OS: "linux", Arch: "amd64", Libc: "musl"}), ratebatch.ExitConfig, []string{"musl", "--clickhouse"}},
		"an old glibc":          {"", machine(Machine{OS: "linux", Arch: "amd64", Libc: "glibc", Glibc: "2.12"}), ratebatch.ExitConfig, []string{"glibc 2.12", "--clickhouse"}},
	} {
		t.Run(name, func(t *testing.T) {
			npm(t, tt.npm)
			o := options(t)
			o.Integrity = integrity
			if tt.change != nil {
				tt.change(&o)
			}
			path, _, err := Run(t.Context(), o)
			if err == nil {
				t.Fatalf("installed to %s", path)
			}
			t.Log(err)
			if code := ratebatch.ExitCode(err); code != tt.code {
				t.Errorf("exit %d, want %d", code, tt.code)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the message does not say %q", want)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Error("the message has several lines")
			}
			leftovers(t, o.Folder)
			if _, err := os.Stat(filepath.Join(o.Folder, libraryFile)); err == nil {
				t.Error("a library is in place after an error")
			}
		})
	}
}

func TestReadOnlyCache(t *testing.T) {
	if os.Geteuid() == 0 {
		// root writes everywhere but into /proc and read-only mounts.
		o := options(t)
		o.Folder = "/proc/ratebatch"
		if _, _, err := Run(t.Context(), o); err == nil {
			t.Error("no error")
		}
		t.Skip("permissions do not bind root")
	}
	parent := t.TempDir()
	if err := os.Chmod(parent, 0o500); err != nil {
		t.Fatal(err)
	}
	o := options(t)
	o.Folder = filepath.Join(parent, "x")
	_, _, err := Run(t.Context(), o)
	if ratebatch.ExitCode(err) != ratebatch.ExitConfig || !strings.Contains(err.Error(), "XDG_CACHE_HOME") {
		t.Errorf("%v", err)
	}
}

func TestPermissionIsExplained(t *testing.T) {
	o := options(t)
	err := o.explain(&os.PathError{Op: "mkdir", Path: "/x", Err: os.ErrPermission}, "/x")
	if ratebatch.ExitCode(err) != ratebatch.ExitConfig || !strings.Contains(err.Error(), "XDG_CACHE_HOME") || !strings.Contains(err.Error(), EnvLib) {
		t.Errorf("%v", err)
	}
}

func TestInterruptedDownloadLeavesNothing(t *testing.T) {
	npm(t, "echo half > $4/package.tgz; exec sleep 60")
	o := options(t)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	started := time.Now()
	if _, _, err := Run(ctx, o); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if took := time.Since(started); took > 5*time.Second {
		t.Errorf("it took %s to stop", took)
	}
	leftovers(t, o.Folder)
	// And the next time it works.
	var file string
	file, o.Integrity = tarball(t, "package/libchdb.so")
	t.Setenv("TARBALL", file)
	npm(t, toDestination)
	if _, installed, err := Run(t.Context(), o); err != nil || !installed {
		t.Error(installed, err)
	}
}

func TestFind(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lib.so")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv(EnvLib, "")
	if _, err := Find(""); ratebatch.ExitCode(err) != ratebatch.ExitConfig || !strings.Contains(err.Error(), "ratebatch engine install") {
		t.Errorf("not installed: %v", err)
	}
	if got, err := Find(file); err != nil || got != file {
		t.Errorf("%s %v", got, err)
	}
	t.Setenv(EnvLib, file)
	if got, err := Find(""); err != nil || got != file {
		t.Errorf("%s %v", got, err)
	}
	t.Setenv(EnvLib, "/nowhere")
	if _, err := Find(""); ratebatch.ExitCode(err) != ratebatch.ExitConfig || !strings.Contains(err.Error(), EnvLib) {
		t.Errorf("%v", err)
	}
}

func TestThisMachine(t *testing.T) {
	m := thisMachine()
	if m.OS == "linux" && m.Libc == "glibc" && !strings.HasPrefix(m.Glibc, "2.") {
		t.Errorf("%+v", m)
	}
}
