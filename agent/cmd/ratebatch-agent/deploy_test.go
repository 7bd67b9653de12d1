package main

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/ratebatch/ratebatch/fixtures/composespec"
)

const deploy = "../../../deploy/agent/"

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// specified are the variables of the specification's .env.
var specified = []string{"KAFKA_BOOTSTRAP_SERVERS", "KAFKA_SASL_USERNAME", "KAFKA_SASL_PASSWORD", "LIBVIRT_URI", "LIBVIRT_USERNAME", "LIBVIRT_PASSWORD", "OVN_NB_DB", "REGION_NAME", "POLL_INTERVAL"}

func TestComposeHandsOnTheSpecificationsVariables(t *testing.T) {
	var compose struct {
		Services map[string]struct {
			Environment map[string]string `yaml:"environment"`
			ReadOnly    bool              `yaml:"read_only"`
			CapDrop     []string          `yaml:"cap_drop"`
			Volumes     []string          `yaml:"volumes"`
		} `yaml:"services"`
	}
	text := []byte(readFile(t, deploy+"compose.yaml"))
	if err := composespec.Validate(text); err != nil {
		t.Errorf("it is no Compose file: %v", err)
	}
	if err := yaml.Unmarshal(text, &compose); err != nil {
		t.Fatal(err)
	}
	s := compose.Services["ratebatch-agent"]
	if !s.ReadOnly || len(s.CapDrop) != 1 || s.CapDrop[0] != "ALL" || !strings.HasSuffix(s.Volumes[0], ":ro") {
		t.Errorf("it may do more than it has to: %+v", s)
	}
	known := map[string]bool{}
	for _, x := range settings {
		known[x.env] = true
	}
	for name := range s.Environment {
		if !known[name] {
			t.Errorf("compose sets %s, which no setting reads", name)
		}
	}
	example := readFile(t, deploy+".env.example")
	for _, name := range specified {
		if !strings.Contains(s.Environment[name], "${"+name) {
			t.Errorf("compose does not hand %s on", name)
		}
		if !strings.Contains(example, "\n"+name+"=") && !strings.HasPrefix(example, name+"=") {
			t.Errorf(".env.example does not have %s", name)
		}
	}
	if strings.Contains(example, "PASSWORD=x") || !regexp.MustCompile(`(?m)^KAFKA_SASL_PASSWORD=$`).MatchString(example) {
		t.Error("the example holds a password")
	}
}

// Where Docker's client is, it reads the file as it will on a compute node; that
// needs no engine.
func TestDockerComposeReadsTheFile(t *testing.T) {
	if err := exec.CommandContext(t.Context(), "docker", "compose", "version").Run(); err != nil {
		t.Skip("docker compose is not installed; the file is checked against the published schema")
	}
	out, err := exec.CommandContext(t.Context(), "docker", "compose", "-f", deploy+"compose.yaml", "--env-file", deploy+".env.example", "config").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "KAFKA_BOOTSTRAP_SERVERS: metrics.example.com:9092") {
		t.Errorf("%v\n%s", err, out)
	}
}

// Each step of the Dockerfile that Docker is not needed for: what it copies is
// there, and the command that it runs builds a static binary from go.mod and the
// folder agent alone.
func TestTheImagesBinaryIsBuiltFromWhatTheDockerfileCopies(t *testing.T) {
	text := readFile(t, deploy+"Dockerfile")
	const top = "../../../"
	dir := t.TempDir()
	for _, m := range regexp.MustCompile(`(?m)^COPY ([^-\n][^\n]*)$`).FindAllStringSubmatch(text, -1) {
		parts := strings.Fields(m[1])
		for _, source := range parts[:len(parts)-1] {
			info, err := os.Stat(top + source)
			if err != nil {
				t.Fatalf("the Dockerfile copies %s: %v", source, err)
			}
			if info.IsDir() {
				err = os.CopyFS(filepath.Join(dir, source), os.DirFS(top+source))
			} else {
				err = os.WriteFile(filepath.Join(dir, source), []byte(readFile(t, top+source)), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	run := regexp.MustCompile(`(?m)^RUN (CGO_ENABLED=0 go build .*)$`).FindStringSubmatch(text)
	if run == nil {
		t.Fatal("the Dockerfile builds nothing")
	}
	binary := filepath.Join(t.TempDir(), "ratebatch-agent")
	// Not -trimpath, which would have the standard library compiled once more.
	build := exec.CommandContext(t.Context(), "sh", "-c", strings.NewReplacer(" -o /ratebatch-agent ", " -o "+binary+" ", " -trimpath", "").Replace(run[1]))
	build.Dir, build.Env = dir, append(os.Environ(), "VERSION=v9.8.7")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := exec.CommandContext(t.Context(), binary, "--version").CombinedOutput(); err != nil || !strings.Contains(string(out), "v9.8.7") {
		t.Errorf("the image's binary says %v\n%s", err, out)
	}
	file, err := elf.Open(binary)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the binary needs a loader, which an image from scratch does not have")
		}
	}
}

// The image is built from go.mod and the folder agent alone.
func TestTheAgentImportsNothingOfTheRest(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	const module = "github.com/ratebatch/ratebatch/"
	for _, pkg := range strings.Fields(string(out)) {
		if rest, ours := strings.CutPrefix(pkg, module); ours && !strings.HasPrefix(rest, "agent/") && rest != "agent" {
			t.Errorf("the agent imports %s", pkg)
		}
	}
	if text := readFile(t, deploy+"Dockerfile"); !strings.Contains(text, "COPY agent agent") || !strings.Contains(text, "CGO_ENABLED=0") || !strings.Contains(text, "USER 65532") {
		t.Error("the Dockerfile builds something else")
	}
}

func TestTheExampleConfigurationLoads(t *testing.T) {
	env := map[string]string{"KAFKA_SASL_PASSWORD": "x"}
	c, err := load(map[string]string{"config": deploy + "agent.yaml"}, func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	b := c.broker()
	if err := b.Validate(); err != nil || c.OVN.NBDB == "" {
		t.Errorf("%v: %+v", err, c)
	}
}

func TestTheUnitIsValidAndTight(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed (Debian: systemd)")
	}
	unit := readFile(t, deploy+"ratebatch-agent.service")
	// verify wants the binary to be there.
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	unit = strings.ReplaceAll(unit, "/usr/bin/ratebatch-agent", self)
	file := filepath.Join(t.TempDir(), "ratebatch-agent.service")
	if err := os.WriteFile(file, []byte(unit), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", file).CombinedOutput()
	if err != nil || strings.Contains(string(out), "ratebatch-agent.service:") {
		t.Errorf("verify: %v\n%s", err, out)
	}
	out, err = exec.CommandContext(t.Context(), analyze, "security", "--offline=true", "--threshold=25", "--no-pager", file).CombinedOutput()
	if strings.Contains(string(out), "unrecognized option") {
		t.Skip("this systemd cannot judge a unit that is not installed")
	}
	if err != nil {
		t.Errorf("security: more exposed than 2.5 of 10: %v\n%s", err, out)
	}
}
