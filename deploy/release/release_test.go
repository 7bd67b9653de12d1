package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestArchivesAreTheSameBytes(t *testing.T) {
	root, out := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{"ratebatch": "program", "deploy/clickhouse/users.sh": "script", "README.md": "text"} {
		if err := write(filepath.Join(root, name), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	r := release{version: "v1.2.3", out: out, epoch: time.Unix(1_764_460_800, 0).UTC()}
	var first []byte
	for i := range 2 {
		if err := os.Chtimes(filepath.Join(root, "README.md"), time.Now(), time.Now().Add(time.Duration(i)*time.Hour)); err != nil {
			t.Fatal(err)
		}
		if err := r.archive(root, "x"); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(out, "x.tar.gz"))
		if err != nil {
			t.Fatal(err)
		}
		if i == 1 && !bytes.Equal(first, text) {
			t.Error("the same files give other bytes")
		}
		first = text
	}
	z, err := gzip.NewReader(bytes.NewReader(first))
	if err != nil {
		t.Fatal(err)
	}
	modes := map[string]int64{}
	for w := tar.NewReader(z); ; {
		h, err := w.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		modes[h.Name] = h.Mode
	}
	if modes["x/ratebatch"] != 0o755 || modes["x/deploy/clickhouse/users.sh"] != 0o755 || modes["x/README.md"] != 0o644 {
		t.Errorf("modes %v", modes)
	}
	if err := r.checksums(); err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(out, "SHA256SUMS"))
	if err != nil || !strings.HasSuffix(string(sums), "  x.tar.gz\n") || len(sums) != 64+2+len("x.tar.gz\n") {
		t.Errorf("%s %v", sums, err)
	}
}

func TestTheBillOfMaterialsNamesWhatIsLinked(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := sbom(self, "test", "v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	var bill struct {
		BomFormat  string
		Components []component
	}
	if err := json.Unmarshal(text, &bill); err != nil || bill.BomFormat != "CycloneDX" || len(bill.Components) == 0 || bill.Components[0].Name != "go" {
		t.Errorf("%s %v", text, err)
	}
}

func TestPackagesHaveVersionsThatSort(t *testing.T) {
	day := time.Date(2026, 11, 30, 23, 0, 0, 0, time.UTC)
	for version, want := range map[string]string{"v1.2.3": "v1.2.3", "v1.2.3-4-gabcdef0": "v1.2.3-4-gabcdef0", "abcdef0-dirty": "0.0.0-20261130.gabcdef0-dirty", "1234567": "0.0.0-20261130.g1234567", "dev": "0.0.0-20261130.gdev"} {
		if got := packageVersion(version, day); got != want {
			t.Errorf("%s: %s, want %s", version, got, want)
		}
	}
}

// A package that is removed takes its timers with it, and nothing of the other
// package; one that is upgraded, or removed from an image, touches no unit.
func TestRemovingAPackageEndsItsUnits(t *testing.T) {
	dir := t.TempDir()
	said := filepath.Join(dir, "said")
	systemctl := "#!/bin/sh\nif [ \"$1\" = list-unit-files ]; then\n" +
		"printf '%s enabled enabled\\n' ratebatch-rate.timer ratebatch-rate.service ratebatch-agent.service ratebatch-dashboard.service\nelse echo \"$*\" >> '" + said + "'; fi\n"
	if err := os.WriteFile(filepath.Join(dir, "systemctl"), []byte(systemctl), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, units := range map[string]string{"ratebatch": "ratebatch-rate.timer ratebatch-rate.service ratebatch-dashboard.service", "ratebatch-agent": "ratebatch-agent.service"} {
		text, err := os.ReadFile(name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		scripts := map[string]string{}
		for _, m := range regexp.MustCompile(`(?m)^  (\w+): deploy/release/(\S+\.sh)$`).FindAllStringSubmatch(string(text), -1) {
			scripts[m[1]] = m[2]
		}
		run := func(script, argument string, env ...string) string {
			t.Helper()
			if err := os.RemoveAll(said); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("sh", scripts[script], argument)
			cmd.Env = append(append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH")), env...)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s %s of %s (%q): %v\n%s", script, argument, name, scripts[script], err, out)
			}
			told, err := os.ReadFile(said)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			return string(told)
		}
		for _, argument := range []string{"remove", "0"} { // dpkg's, rpm's
			if got := run("preremove", argument); got != "disable --now "+units+"\n" {
				t.Errorf("%s, %s: %q", name, argument, got)
			}
			if got := run("preremove", argument, "DPKG_ROOT=/image"); got != "" {
				t.Errorf("%s, %s from an image: %q", name, argument, got)
			}
		}
		for _, argument := range []string{"upgrade", "1"} {
			if got := run("preremove", argument); got != "" {
				t.Errorf("%s, %s: %q", name, argument, got)
			}
		}
		if got := run("postremove", "remove"); got != "daemon-reload\n" {
			t.Errorf("%s: after the removal %q", name, got)
		}
	}
}
