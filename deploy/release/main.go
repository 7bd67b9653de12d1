// Command release builds what is published of a version: archives for each
// platform with the program, units, manual pages and completions, a software
// bill of materials (CycloneDX) for each program, deb and rpm packages by nfpm,
// and checksums of all of it. The same commit gives the same archives.
//
//	go run ./deploy/release -version v1.2.3 -epoch 1764460800 -nfpm bin/tools/nfpm -out dist
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// programs by the name they are published under.
var programs = []struct {
	name, pkg string
	tags      string
}{
	{"ratebatch", "./jobs/cmd/ratebatch", ""},
	{"ratebatch-static", "./jobs/cmd/ratebatch", "static"}, // for servers only, without libc
	{"ratebatch-agent", "./agent/cmd/ratebatch-agent", ""},
}

type release struct {
	version, out, nfpm string
	epoch              time.Time
	archs              []string
}

func main() {
	var r release
	var epoch int64
	var archs string
	flag.StringVar(&r.version, "version", "", "version, such as v1.2.3")
	flag.StringVar(&r.out, "out", "dist", "folder to write to; it is emptied")
	flag.StringVar(&r.nfpm, "nfpm", "", "nfpm program; empty: no packages")
	flag.StringVar(&archs, "archs", "amd64,arm64", "architectures")
	flag.Int64Var(&epoch, "epoch", 0, "time of the commit, in Unix seconds: what archives carry")
	flag.Parse()
	r.epoch, r.archs = time.Unix(epoch, 0).UTC(), strings.Split(archs, ",")
	if err := r.run(); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func (r *release) run() error {
	if r.version == "" {
		return errors.New("-version is missing")
	}
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "ratebatch-release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }() // it is the system's temporary folder
	for _, arch := range r.archs {
		if err := r.programs(arch, filepath.Join(work, arch)); err != nil {
			return err
		}
	}
	// Pages and completions come from the program itself, so they fit it.
	host := filepath.Join(work, runtime.GOARCH, "ratebatch")
	if !slices.Contains(r.archs, runtime.GOARCH) {
		host = filepath.Join(work, "host", "ratebatch")
		if err := r.build(host, "./jobs/cmd/ratebatch", "", runtime.GOARCH); err != nil {
			return err
		}
	}
	shared := filepath.Join(work, "shared")
	if err := r.documents(host, shared); err != nil {
		return err
	}
	for _, arch := range r.archs {
		if err := r.arch(arch, shared, filepath.Join(work, arch)); err != nil {
			return err
		}
	}
	return r.checksums()
}

func (r *release) build(out, pkg, tags, arch string) error {
	fmt.Println("building", filepath.Base(out), arch)
	args := []string{"build", "-trimpath", "-ldflags", "-s -w -X main.version=" + r.version, "-o", out}
	if tags != "" {
		args = append(args, "-tags", tags)
	}
	return r.command("go", append(args, pkg), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
}

func (r *release) command(name string, args []string, env ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Env = append(append(os.Environ(), "SOURCE_DATE_EPOCH="+strconv.FormatInt(r.epoch.Unix(), 10)), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// documents writes manual pages, completions and what operators need beside the
// program.
func (r *release) documents(host, to string) error {
	if err := r.command(host, []string{"man", "--out", filepath.Join(to, "man")}); err != nil {
		return err
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		cmd := exec.Command(host, "completion", shell)
		text, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("completion for %s: %w", shell, err)
		}
		if err := write(filepath.Join(to, "completions", "ratebatch."+shell), text); err != nil {
			return err
		}
	}
	return copyDocuments(".", to)
}

// published are files of the checkout that stand in the archive in the same
// places: the documents, and all that they lead to. Sources are not among them.
var published = []string{
	"LICENSE", "README.md", "CHANGELOG.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs",
	"deploy/README.md", "deploy/RUNBOOK.md", "deploy/Dockerfile", "deploy/compose.yaml", "deploy/.env.example", "deploy/compose",
	"deploy/systemd", "deploy/cron", "deploy/kubernetes", "deploy/clickhouse", "deploy/prometheus", "deploy/grafana", "deploy/agent",
	"fixtures/plans/demo.yaml", "fixtures/bitbrains/README.md", "fixtures/bitbrains/LICENSE", "jobs/web/openapi.yaml", "agent/wire/README.md",
}

// copyDocuments copies what is published of a checkout.
func copyDocuments(from, to string) error {
	for _, name := range published {
		if err := copyTree(filepath.Join(from, name), filepath.Join(to, name)); err != nil {
			return err
		}
	}
	return nil
}

// programs builds those of one architecture, and the bill of materials of each.
func (r *release) programs(arch, root string) error {
	for _, p := range programs {
		file := filepath.Join(root, p.name)
		if err := r.build(file, p.pkg, p.tags, arch); err != nil {
			return err
		}
		bill, err := sbom(file, p.name, r.version)
		if err != nil {
			return err
		}
		if err := write(filepath.Join(r.out, fmt.Sprintf("%s_%s_linux_%s.cdx.json", p.name, r.version, arch)), bill); err != nil {
			return err
		}
	}
	return nil
}

// arch makes the archive and the packages of one architecture.
func (r *release) arch(arch, shared, root string) error {
	if err := copyTree(shared, root); err != nil {
		return err
	}
	name := fmt.Sprintf("ratebatch_%s_linux_%s", r.version, arch)
	if err := r.archive(root, name); err != nil {
		return err
	}
	if r.nfpm == "" {
		return nil
	}
	for _, kind := range []string{"deb", "rpm"} {
		for _, config := range []string{"ratebatch", "ratebatch-agent"} {
			// nfpm expands variables in contents only where they are asked for.
			text, err := os.ReadFile("deploy/release/" + config + ".yaml")
			if err != nil {
				return err
			}
			file := filepath.Join(root, "..", config+"-"+arch+".yaml")
			text = bytes.ReplaceAll(bytes.ReplaceAll(bytes.ReplaceAll(text, []byte("@ROOT@"), []byte(root)), []byte("@ARCH@"), []byte(arch)), []byte("@VERSION@"), []byte(packageVersion(r.version, r.epoch)))
			if err := write(file, text); err != nil {
				return err
			}
			if err := r.command(r.nfpm, []string{"package", "--config", file, "--packager", kind, "--target", r.out}); err != nil {
				return err
			}
		}
	}
	return nil
}

// packageVersion is what packages call a version. A commit without a tag is only
// its hash, which dpkg refuses and which does not sort: it comes before every
// release, in the order of days.
func packageVersion(version string, epoch time.Time) string {
	if regexp.MustCompile(`^v?[0-9]+\.[0-9]+\.[0-9]+`).MatchString(version) {
		return version
	}
	return "0.0.0-" + epoch.Format("20060102") + ".g" + version
}

// archive writes a folder as .tar.gz, in the order of names, with one time and
// one owner.
func (r *release) archive(root, name string) error {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	w := tar.NewWriter(z)
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		mode := int64(0o644)
		if !strings.Contains(relative, "/") && strings.HasPrefix(relative, "ratebatch") || strings.HasSuffix(relative, ".sh") {
			mode = 0o755
		}
		if err := w.WriteHeader(&tar.Header{Name: name + "/" + filepath.ToSlash(relative), Mode: mode, Size: int64(len(text)), ModTime: r.epoch, Format: tar.FormatPAX}); err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	})
	if err := errors.Join(err, w.Close(), z.Close()); err != nil {
		return err
	}
	return write(filepath.Join(r.out, name+".tar.gz"), b.Bytes())
}

// component is one of CycloneDX.
type component struct {
	Type    string `json:"type"`
	Name    string `json:"name"`
	Version string `json:"version"`
	PURL    string `json:"purl"`
}

// sbom lists the modules that a program was built from, by what the linker wrote
// into it.
func sbom(file, name, version string) ([]byte, error) {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("bill of materials of %s: %w", file, err)
	}
	components := []component{{"platform", "go", strings.TrimPrefix(info.GoVersion, "go"), "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go")}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		components = append(components, component{"library", m.Path, m.Version, "pkg:golang/" + m.Path + "@" + m.Version})
	}
	out, err := json.MarshalIndent(map[string]any{
		"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
		"metadata":   map[string]any{"component": component{"application", name, version, "pkg:golang/" + info.Path + "@" + version}},
		"components": components,
	}, "", "  ")
	return append(out, '\n'), err
}

// checksums writes SHA256SUMS over all files.
func (r *release) checksums() error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var lines []string
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(r.out, e.Name()))
		if err != nil {
			return err
		}
		lines = append(lines, fmt.Sprintf("%x  %s\n", sha256.Sum256(text), e.Name()))
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[66:], b[66:]) })
	return write(filepath.Join(r.out, "SHA256SUMS"), []byte(strings.Join(lines, "")))
}

func write(name string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, text, 0o644)
}

func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return write(to, text)
}

// copyTree copies a folder, or one file.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		relative, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		return copyFile(path, filepath.Join(to, relative))
	})
}
