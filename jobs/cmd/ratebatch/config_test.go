package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/ratebatch/ratebatch/ratebatch/engine/enginetest"
)

// withoutVariables takes our variables out of the environment: they are defaults
// of flags.
func withoutVariables(t *testing.T) {
	t.Helper()
	for _, entry := range os.Environ() {
		if name, value, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "RATEBATCH_") && !strings.HasPrefix(name, "RATEBATCH_TEST_") && !strings.HasPrefix(name, "RATEBATCH_ENGINE_") {
			t.Setenv(name, value) // so that it comes back
			os.Unsetenv(name)
		}
	}
}

func configOf(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ratebatch.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestFlagsWinOverTheEnvironmentOverTheFile(t *testing.T) {
	withoutVariables(t)
	flags, _ := database(t)
	file := configOf(t, "data: "+flags[1]+"\ndatabase: "+flags[3]+"\noutput: json\nrate: {wait_periods: 3}\n")
	periods := func(args ...string) int {
		t.Helper()
		var x struct {
			Periods int `json:"due_periods"`
		}
		if err := json.Unmarshal([]byte(must(t, append(append([]string{"--config", file, "status"}, now...), args...)...)), &x); err != nil {
			t.Fatal(err)
		}
		return x.Periods
	}
	// Two scopes with usage of 48 hours; at 2026-11-02T10:00 the last hours wait.
	at := []string{"--now", "2026-11-02T10:30:00Z"}
	if got := periods(at...); got != 2*32 {
		t.Errorf("by the file: %d periods are due, want 64", got)
	}
	t.Setenv("RATEBATCH_RATE_WAIT_PERIODS", "5")
	if got := periods(at...); got != 2*30 {
		t.Errorf("by the environment: %d periods are due, want 60", got)
	}
	if got := periods(append(at, "--wait-periods", "8")...); got != 2*27 {
		t.Errorf("by the flag: %d periods are due, want 54", got)
	}
	// What a variable without a key of its own says wins over the file, too.
	t.Setenv("RATEBATCH_DATABASE", "test_nothing_here")
	if code, _, stderr := cli(t, "--config", file, "status"); code != 2 || !strings.Contains(stderr, "test_nothing_here") {
		t.Errorf("exit %d %s", code, stderr)
	}
}

func TestMistakesOfTheConfigurationComeTogether(t *testing.T) {
	withoutVariables(t)
	for name, tt := range map[string]struct {
		text string
		want []string
	}{
		"unknown keys with their lines": {"databse: x\nrate:\n  wait_period: 3\n  shard: 0/2\n", []string{"ratebatch.yaml:1: unknown key databse: did you mean database?", "ratebatch.yaml:3: unknown key rate.wait_period: did you mean rate.wait_periods?"}},
		"values that are none":          {"rate: {wait_periods: many}\nexport: {grace: [1h, 2h]}\n", []string{"rate.wait_periods", "many", "export.grace", "not several"}},
		"a section that is a value":     {"rate: fast\n", []string{"unknown key rate"}},
		"a password in the file":        {"kafka: {password: hunter2}\n", []string{"kafka.password", "…_file"}},
		"no YAML":                       {"rate: {\n", []string{"ratebatch.yaml"}},
		"a key of a command by hand":    {"backfill: {all: true}\n", []string{"unknown key backfill"}},
	} {
		t.Run(name, func(t *testing.T) {
			file := configOf(t, tt.text)
			for _, command := range [][]string{{"config", "check"}, {"status"}} {
				code, stdout, stderr := cli(t, append([]string{"--config", file}, command...)...)
				if code != 2 || stdout != "" {
					t.Errorf("%v: exit %d %s", command, code, stdout)
				}
				for _, want := range tt.want {
					if !strings.Contains(stderr, want) {
						t.Errorf("%v: stderr lacks %q: %s", command, want, stderr)
					}
				}
				if strings.Contains(stderr, "hunter2") {
					t.Errorf("%v shows the password", command)
				}
			}
		})
	}
	if code, _, stderr := cli(t, "--config", "/none.yaml", "status"); code != 2 || !strings.Contains(stderr, "/none.yaml") {
		t.Errorf("a file that is not there: exit %d %s", code, stderr)
	}
	t.Setenv("RATEBATCH_RATE_WAIT_PERIOD", "3")
	if code, _, stderr := cli(t, "config", "check"); code != 2 || !strings.Contains(stderr, "RATEBATCH_RATE_WAIT_PERIOD means nothing") {
		t.Errorf("an unknown variable: exit %d %s", code, stderr)
	}
	file := configOf(t, "clickhouse_password_file: /none.secret\n")
	if code, _, stderr := cli(t, "--config", file, "config", "check"); code != 2 || !strings.Contains(stderr, "/none.secret") {
		t.Errorf("a secret's file that is not there: exit %d %s", code, stderr)
	}
}

func TestConfigPrintMasksSecrets(t *testing.T) {
	withoutVariables(t)
	file := configOf(t, "clickhouse: clickhouse://rater:hunter2@db:9000/ratebatch\nexport: {to: 's3://finance/x?secret=hunter2', dataset: [lines, focus]}\n")
	t.Setenv("RATEBATCH_KAFKA", "one:9092,two:9092")
	for _, o := range []string{"table", "json"} {
		out := must(t, "--config", file, "config", "print", "--output", o)
		if strings.Contains(out, "hunter2") || !strings.Contains(out, "rater:***@db") || !strings.Contains(out, "RATEBATCH_KAFKA") || !strings.Contains(out, "lines focus") || !strings.Contains(out, "ratebatch.yaml:2") {
			t.Errorf("%s", out)
		}
	}
	if out := must(t, "--config", file, "config", "print", "--all"); !strings.Contains(out, "rate.wait_periods") {
		t.Errorf("--all lacks defaults:\n%s", out)
	}
}

// docs/configuration.md is what the program says, and knows every option of
// CloudKitty's background work.
func TestConfigurationReferenceIsUpToDate(t *testing.T) {
	withoutVariables(t)
	text := must(t, "config", "reference")
	file, err := os.ReadFile("../../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(file, []byte(text)) {
		t.Error("docs/configuration.md is stale: write it with 'ratebatch config reference > docs/configuration.md'")
	}
	for _, option := range []string{"[collect]/period", "[collect]/wait_periods", "[collect]/scope_key", "[orchestrator]/max_workers", "[orchestrator]/max_workers_reprocessing", "[orchestrator]/max_threads",
		"[orchestrator]/collector_request_timeout", "[orchestrator]/coordination_url", "[orchestrator]/skip_datapoints_expression", "[storage]/retention_period"} {
		if !strings.Contains(text, "| "+option+" |") {
			t.Errorf("the reference lacks %s", option)
		}
	}
	// What it says takes CloudKitty's place exists.
	root := newRootCmd(&program{})
	var keys []string
	for _, o := range configurable(root) {
		keys = append(keys, o.Key)
	}
	for _, key := range []string{"rate.wait_periods", "rate.query_timeout", "rate.timeout", "migrate.retention", "retention.lines_after", "retention.superseded_after", "retention.runs_after", "schedule.file", "export.to", "kafka.password_file", "clickhouse_password_file"} {
		if !slices.Contains(keys, key) {
			t.Errorf("there is no key %s", key)
		}
	}
	seen := map[string]string{}
	for _, o := range configurable(root) {
		if other, ok := seen[o.Env]; ok {
			t.Errorf("%s sets both %s and %s", o.Env, other, o.Key)
		}
		seen[o.Env] = o.Key
	}
}

// What deploy/ holds is taken by this program.
func TestDeployedFilesAreTaken(t *testing.T) {
	withoutVariables(t)
	if _, err := loadConfig("../../../deploy/kubernetes/base/ratebatch.yaml", configurable(newRootCmd(&program{}))); err != nil {
		t.Error(err)
	}
	for _, file := range []string{"", "../../../deploy/compose/schedule.yaml", "../../../deploy/kubernetes/overlays/cluster/schedule.yaml"} {
		if _, err := (&program{}).loadSchedule(file); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	text, err := os.ReadFile("../../../deploy/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var stack struct {
		Services map[string]struct {
			Image   string
			Command []string
		}
	}
	if err := yaml.Unmarshal(text, &stack); err != nil {
		t.Fatal(err)
	}
	ours := 0
	for name, s := range stack.Services {
		if strings.Contains(s.Image, "RATEBATCH_IMAGE") {
			ours++
			cmd, rest, err := newRootCmd(&program{}).Find(s.Command)
			if err == nil {
				err = cmd.ParseFlags(rest)
			}
			if err != nil || !cmd.Runnable() {
				t.Errorf("compose.yaml, service %s: %v", name, err)
			}
		}
	}
	if ours != 5 {
		t.Errorf("%d services of compose.yaml run ratebatch", ours)
	}
	for _, m := range regexp.MustCompile(`(?m)^\s+(RATEBATCH_[A-Z_]+): `).FindAllStringSubmatch(string(text), -1) {
		known := slices.ContainsFunc(configurable(newRootCmd(&program{})), func(o option) bool { return o.Env == m[1] })
		for _, v := range otherVariables {
			known = known || v.name == m[1]
		}
		if !known {
			t.Errorf("compose.yaml sets %s, which means nothing", m[1])
		}
	}
}

// What is configured for the deployment takes over neither a folder that the
// command line names nor what is made up.
func TestACommandLineComesBeforeAConfiguredServerAndBroker(t *testing.T) {
	o := enginetest.Options(t)
	flags := []string{"--data", o.DataDir, "--database", o.Database}
	t.Setenv("RATEBATCH_CLICKHOUSE", "clickhouse://127.0.0.1:1/elsewhere")
	t.Setenv("RATEBATCH_KAFKA", "127.0.0.1:1")
	must(t, append(flags, "migrate", "--retention", "40y")...)
	must(t, append(flags, "simulate", "--instances", "3", "--hours", "1")...)
	if out := must(t, append(flags, "engine", "sql", "-f", "tsv", "-q", "SELECT count() > 0 FROM instance_samples")...); !strings.HasSuffix(strings.TrimSpace(out), "\n1") {
		t.Errorf("samples in the folder: %s", out)
	}
}
