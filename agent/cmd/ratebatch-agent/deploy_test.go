package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
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
	if err := yaml.Unmarshal([]byte(readFile(t, deploy+"compose.yaml")), &compose); err != nil {
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
	unit = strings.ReplaceAll(unit, "/usr/local/bin/ratebatch-agent", self)
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
