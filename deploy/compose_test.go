package deploy_test

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

// composeProject reads a compose file as docker compose does: with its schema,
// its merge keys and its variables, which have the values given.
func composeProject(t *testing.T, file string, variables []string) (*types.Project, error) {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{file}, cli.WithName("ratebatch"), cli.WithEnv(variables), cli.WithInterpolation(true), cli.WithResolvedPaths(true))
	if err != nil {
		t.Fatal(err)
	}
	return options.LoadProject(t.Context())
}

// aSecret is what exampleVariables gives each password and key.
const aSecret = "hunter2-given"

// exampleVariables are those of .env.example, with a word where it has no value.
func exampleVariables(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, m := range regexp.MustCompile(`(?m)^([A-Z0-9_]+)=(.*)$`).FindAllStringSubmatch(read(t, ".env.example"), -1) {
		value := m[2]
		switch {
		case regexp.MustCompile(`PASSWORD|SECRET`).MatchString(m[1]):
			value = aSecret
		case value == "":
			value = "given"
		}
		out = append(out, m[1]+"="+value)
	}
	return out
}

func TestDockerComposeTakesTheStack(t *testing.T) {
	variables := exampleVariables(t)
	p, err := composeProject(t, "compose.yaml", variables)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"redpanda", "console", "clickhouse", "s3", "init-topics", "init-tables", "init-users", "init-bucket", "ingest", "schedule", "dashboard"} {
		if _, ok := p.Services[want]; !ok {
			t.Errorf("there is no service %s", want)
		}
	}
	for name := range p.Services {
		s := p.Services[name]
		checkWaits(t, p, &s)
		checkPlaces(t, p, &s)
		ours := strings.HasPrefix(s.Image, "ratebatch")
		if ours && (!s.ReadOnly || s.User != "65532:65532" || !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Contains(s.SecurityOpt, "no-new-privileges:true")) {
			t.Errorf("%s may do more than it needs", name)
		}
		for _, port := range s.Ports {
			if port.HostIP != "127.0.0.1" && port.Published != "19092" {
				t.Errorf("%s publishes %s to everybody", name, port.Published)
			}
		}
		// serve refuses such an address without them, but only once it is started.
		if ours && slices.Contains(s.Command, "serve") && !slices.Contains(s.Command, "--tokens") {
			t.Errorf("%s shows everybody's costs without asking for a token", name)
		}
	}
	// Each password is wanted, and not one of them has a value in the file.
	for i, v := range variables {
		name, _, _ := strings.Cut(v, "=")
		_, err := composeProject(t, "compose.yaml", slices.Delete(slices.Clone(variables), i, i+1))
		if wanted := name != "RATEBATCH_IMAGE"; wanted != (err != nil) || wanted && (!strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), ".env.example")) {
			t.Errorf("without %s: %v", name, err)
		}
	}
	// A typing error does not pass.
	broken := t.TempDir() + "/compose.yaml"
	if err := os.WriteFile(broken, []byte("services: {a: {image: x, depend_on: [b]}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := composeProject(t, broken, nil); err == nil {
		t.Error("a key that compose does not know is taken")
	}
	if _, err := composeProject(t, "agent/compose.yaml", append(variables, "KAFKA_BOOTSTRAP_SERVERS=kafka.example.org:9092")); err != nil {
		t.Errorf("agent/compose.yaml: %v", err)
	}
}

// checkWaits checks that a service waits for what can happen.
func checkWaits(t *testing.T, p *types.Project, s *types.ServiceConfig) {
	t.Helper()
	for other, d := range s.DependsOn {
		target, ok := p.Services[other]
		switch {
		case !ok:
			t.Errorf("%s waits for %s, which is none", s.Name, other)
		case d.Condition == types.ServiceConditionHealthy && target.HealthCheck == nil:
			t.Errorf("%s waits for the health of %s, which has no check", s.Name, other)
		case d.Condition == types.ServiceConditionCompletedSuccessfully && target.Restart != "":
			t.Errorf("%s waits for the end of %s, which restarts", s.Name, other)
		}
	}
}

func healthCheck(s *types.ServiceConfig) []string {
	if s.HealthCheck == nil {
		return nil
	}
	return s.HealthCheck.Test
}

// checkPlaces checks that what a service mounts is there, and that a password
// comes by a variable, and stands in no argument.
func checkPlaces(t *testing.T, p *types.Project, s *types.ServiceConfig) {
	t.Helper()
	for _, v := range s.Volumes {
		if v.Type == types.VolumeTypeBind {
			if _, err := os.Stat(v.Source); err != nil {
				t.Errorf("%s: %v", s.Name, err)
			}
		} else if _, ok := p.Volumes[v.Source]; !ok {
			t.Errorf("%s: volume %s is not declared", s.Name, v.Source)
		}
	}
	for _, secret := range s.Secrets {
		if _, ok := p.Secrets[secret.Source]; !ok {
			t.Errorf("%s: secret %s is not declared", s.Name, secret.Source)
		}
	}
	for _, arguments := range [][]string{s.Command, s.Entrypoint, healthCheck(s)} {
		for _, a := range arguments {
			if strings.Contains(a, aSecret) {
				t.Errorf("%s: a secret stands in the list of processes: %q", s.Name, arguments)
			}
		}
	}
	for key, value := range s.Environment {
		if regexp.MustCompile(`PASSWORD|SECRET|BOOTSTRAP`).MatchString(key) && (value == nil || !strings.Contains(*value, aSecret)) {
			t.Errorf("%s: %s is a secret by value", s.Name, key)
		}
	}
}

func TestVariablesOfTheStack(t *testing.T) {
	text, example := read(t, "compose.yaml"), read(t, ".env.example")
	used := map[string]bool{}
	for _, m := range regexp.MustCompile(`\$\{([A-Z0-9_]+)[:}]`).FindAllStringSubmatch(text, -1) {
		used[m[1]] = true
	}
	var listed []string
	for _, m := range regexp.MustCompile(`(?m)^([A-Z0-9_]+)=(.*)$`).FindAllStringSubmatch(example, -1) {
		listed = append(listed, m[1])
		if !used[m[1]] {
			t.Errorf(".env.example has %s, which nothing uses", m[1])
		}
		if (strings.Contains(m[1], "PASSWORD") || strings.Contains(m[1], "SECRET")) && m[2] != "" {
			t.Errorf(".env.example has a value for %s", m[1])
		}
	}
	for name := range used {
		if !slices.Contains(listed, name) {
			t.Errorf(".env.example lacks %s", name)
		}
	}
}

// The same file, read by docker's own client.
func TestDockerComposeConfig(t *testing.T) {
	if err := exec.Command("docker", "compose", "version").Run(); err != nil {
		t.Skip("the docker client has no compose; TestDockerComposeTakesTheStack reads the file with the library it is made of")
	}
	cmd := exec.Command("docker", "compose", "--env-file", "/dev/stdin", "-f", "compose.yaml", "config", "--quiet")
	cmd.Stdin = strings.NewReader(strings.Join(exampleVariables(t), "\n"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("docker compose config: %v\n%s", err, out)
	}
}
