package main

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// released is the folder that make release wrote: make test-release names it.
func released(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("RATEBATCH_TEST_RELEASE")
	if dir == "" {
		t.Skip("RATEBATCH_TEST_RELEASE names no release: make test-release makes one")
	}
	return dir
}

func output(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// one gives the only file of a pattern.
func one(t *testing.T, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) != 1 {
		t.Fatalf("%s: %v %v, want one file", pattern, files, err)
	}
	return files[0]
}

func TestReleaseHasEverything(t *testing.T) {
	dir := released(t)
	sums := output(t, dir, "sha256sum", "-c", "SHA256SUMS")
	var listed []string
	for _, m := range regexp.MustCompile(`(?m)^(\S+): OK$`).FindAllStringSubmatch(sums, -1) {
		listed = append(listed, m[1])
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "SHA256SUMS" && !slices.Contains(listed, e.Name()) {
			t.Errorf("%s has no checksum", e.Name())
		}
	}
	for _, arch := range []struct {
		deb, rpm string
		machine  elf.Machine
	}{{"amd64", "x86_64", elf.EM_X86_64}, {"arm64", "aarch64", elf.EM_AARCH64}} {
		archive := one(t, filepath.Join(dir, "ratebatch_*_linux_"+arch.deb+".tar.gz"))
		root := t.TempDir()
		output(t, root, "tar", "--strip-components=1", "-xzf", archive)
		linksLead(t, root)
		for _, program := range []string{"ratebatch", "ratebatch-static", "ratebatch-agent"} {
			one(t, filepath.Join(dir, program+"_*_linux_"+arch.deb+".cdx.json"))
			f, err := elf.Open(filepath.Join(root, program))
			if err != nil {
				t.Fatal(err)
			}
			libraries, err := f.ImportedLibraries()
			if err != nil || f.Machine != arch.machine || program != "ratebatch" && len(libraries) > 0 {
				t.Errorf("%s of %s is for %s and needs %v (%v)", program, arch.deb, f.Machine, libraries, err)
			}
			f.Close()
		}
		for _, name := range []string{"man/ratebatch-rate.1", "completions/ratebatch.bash", "deploy/systemd/ratebatch-rate.timer", "deploy/clickhouse/users.sql", "deploy/.env.example", "deploy/kubernetes/base/migrate.yaml", "fixtures/plans/demo.yaml", "LICENSE", "CHANGELOG.md"} {
			if _, err := os.Stat(filepath.Join(root, name)); err != nil {
				t.Errorf("the archive of %s: %v", arch.deb, err)
			}
		}
		for _, name := range []string{"ratebatch", "ratebatch-agent"} {
			deb := one(t, filepath.Join(dir, name+"_*_"+arch.deb+".deb"))
			if got := strings.TrimSpace(output(t, dir, "dpkg-deb", "--field", deb, "Architecture")); got != arch.deb {
				t.Errorf("%s is for %s", deb, got)
			}
			if name == "ratebatch" {
				unpacked := t.TempDir()
				output(t, dir, "dpkg-deb", "--extract", deb, unpacked)
				linksLead(t, filepath.Join(unpacked, "usr/share/doc/ratebatch"))
			}
			rpm := one(t, filepath.Join(dir, name+"-[0-9]*."+arch.rpm+".rpm"))
			text, err := os.ReadFile(rpm)
			if err != nil || !bytes.HasPrefix(text, []byte{0xed, 0xab, 0xee, 0xdb}) {
				t.Errorf("%s is no rpm (%v)", rpm, err)
			}
			if _, err := exec.LookPath("rpm"); err == nil {
				if list := output(t, dir, "rpm", "-qlp", "--nosignature", rpm); !strings.Contains(list, "/usr/bin/"+name+"\n") {
					t.Errorf("%s holds\n%s", rpm, list)
				}
			}
		}
	}
}

// The packages of this machine's kind are installed into an empty folder, by
// dpkg, with their scripts; what is there then runs.
func TestReleaseInstalls(t *testing.T) {
	dir := released(t)
	root := t.TempDir()
	for _, name := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates"} {
		if err := os.MkdirAll(filepath.Join(root, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "var/lib/dpkg/status"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	output(t, dir, "dpkg", "--root="+root, "--force-script-chrootless", "--force-not-root", "--install",
		one(t, filepath.Join(dir, "ratebatch_*_amd64.deb")), one(t, filepath.Join(dir, "ratebatch-agent_*_amd64.deb")))
	program := filepath.Join(root, "usr/bin/ratebatch")
	version := strings.TrimSpace(output(t, root, program, "--version"))
	name := filepath.Base(one(t, filepath.Join(dir, "ratebatch_*_linux_amd64.tar.gz")))
	if want := strings.TrimSuffix(strings.TrimPrefix(name, "ratebatch_"), "_linux_amd64.tar.gz"); !strings.Contains(version, want) {
		t.Errorf("--version says %q, want %q", version, want)
	}
	if out := output(t, root, program, "schedule", "next", "-n", "1"); !strings.Contains(out, "ratebatch ingest") {
		t.Errorf("schedule next of what was installed: %s", out)
	}
	output(t, root, filepath.Join(root, "usr/bin/ratebatch-agent"), "--version")
	output(t, root, "bash", "-n", filepath.Join(root, "usr/share/bash-completion/completions/ratebatch"))
	// The units are those of the schedule, and each program that one starts is there.
	output(t, root, program, "schedule", "render", "systemd", "--out", filepath.Join(root, "usr/lib/systemd/system"), "--check")
	units, err := filepath.Glob(filepath.Join(root, "usr/lib/systemd/system/*.service"))
	if err != nil || len(units) < 9 {
		t.Fatalf("units %v %v", units, err)
	}
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^ExecStart=(\S+)`).FindAllSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(root, string(m[1]))); err != nil {
				t.Errorf("%s starts what is not there: %v", filepath.Base(unit), err)
			}
		}
	}
	pages, err := filepath.Glob(filepath.Join(root, "usr/share/man/man1/ratebatch*.1"))
	if err != nil || len(pages) < 30 {
		t.Errorf("%d manual pages (%v)", len(pages), err)
	}
	if info, err := os.Stat(filepath.Join(root, "etc/ratebatch")); err != nil || !info.IsDir() {
		t.Errorf("/etc/ratebatch: %v", err)
	}
	if _, err := exec.LookPath("systemd-sysusers"); err == nil {
		users, err := os.ReadFile(filepath.Join(root, "etc/passwd"))
		if err != nil || !strings.Contains(string(users), "ratebatch:") {
			t.Errorf("the user was not made: %v\n%s", err, users)
		}
	}
}
