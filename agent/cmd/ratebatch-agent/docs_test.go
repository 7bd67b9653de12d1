package main

import (
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/agent/wire"
	"github.com/ratebatch/ratebatch/fixtures/kafkatest"
)

// Every command of docs/agent.md, of the help and of the unit works as it
// stands, on a peer and a broker that the environment names.
func TestTheCommandsOfTheDocumentation(t *testing.T) {
	peer := startPeer(t, 2)
	b := kafkatest.Start(t, kafkatest.Config{})
	topics := b.Topics(t, 1)
	for name, value := range map[string]string{"LIBVIRT_URI": peer.URI(), "KAFKA_BOOTSTRAP_SERVERS": strings.Join(b.Options.Brokers, ","),
		"KAFKA_TOPIC": topics.Port, "KAFKA_INSTANCE_TOPIC": topics.Instance, "KAFKA_DISK_TOPIC": topics.Disk,
		"KAFKA_SASL_USERNAME": b.Options.User, "KAFKA_SASL_PASSWORD": b.Options.Password, "STATE_DIRECTORY": t.TempDir()} {
		t.Setenv(name, value)
	}
	text := readFile(t, "../../../docs/agent.md")
	lines := regexp.MustCompile(`(?m)^    ratebatch-agent (.*)$`).FindAllStringSubmatch(text, -1)
	if len(lines) < 3 {
		t.Fatalf("the documentation shows %d commands", len(lines))
	}
	for _, line := range lines {
		command, _, _ := strings.Cut(line[1], "#")
		args := strings.Fields(command)
		if args[0] == "run" {
			agent := background(t, args...)
			waitFor(t, "the agent to run", func() bool { return strings.Contains(agent.stderr.String(), "the agent runs") })
			agent.stop()
			continue
		}
		var out, errs buffer
		if code := run(t.Context(), args, &out, io.MultiWriter(&errs)); code != 0 || out.String() == "" {
			t.Errorf("%q: exit %d\n%s%s", args, code, &out, &errs)
		}
	}
}

// envUpdateDocs makes TestTheDocumentationIsTrue write the table of settings
// into docs/agent.md, instead of comparing.
const envUpdateDocs = "RATEBATCH_TEST_UPDATE_DOCS"

var settingsTable = regexp.MustCompile(`(?s)(<!-- settings: [^\n]*-->\n)(.*?)(<!-- settings end -->)`)

// tableOfSettings is the table as docs/agent.md has it: every setting, with its
// default in the words of --help.
func tableOfSettings() string {
	var b strings.Builder
	b.WriteString("\n| flag | variable | what |\n| --- | --- | --- |\n")
	for _, s := range settings {
		help := strings.NewReplacer("|", `\|`, "<", "&lt;", ">", "&gt;", "*", `\*`).Replace(s.help)
		b.WriteString("| `--" + s.flag + "` | `" + s.env + "` | " + help + " |\n")
	}
	b.WriteString("\n")
	return b.String()
}

// The documentation has every setting, and names flags, variables, metrics and
// YAML keys that exist.
func TestTheDocumentationIsTrue(t *testing.T) {
	const name = "../../../docs/agent.md"
	text := readFile(t, name)
	written := settingsTable.FindStringSubmatch(text)
	if written == nil {
		t.Fatal("docs/agent.md has no place for the settings")
	}
	if want := tableOfSettings(); written[2] != want {
		if os.Getenv(envUpdateDocs) == "" {
			t.Errorf("the settings of docs/agent.md are not those of settings.go: %s=1 go test ./agent/cmd/ratebatch-agent -run TestTheDocumentationIsTrue writes them", envUpdateDocs)
		} else if err := os.WriteFile(name, []byte(strings.Replace(text, written[0], written[1]+want+written[3], 1)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	flags, variables := map[string]bool{"--config": true, "--output": true, "--once": true, "--publish-kafka": true, "--wait": true, "--help": true, "--version": true}, map[string]bool{}
	for _, s := range settings {
		flags["--"+s.flag], variables[s.env] = true, true
	}
	for _, flag := range regexp.MustCompile("`(--[a-z-]+)").FindAllStringSubmatch(text, -1) {
		if !flags[flag[1]] {
			t.Errorf("the documentation names %s, which there is not", flag[1])
		}
	}
	for _, name := range regexp.MustCompile("`([A-Z]+_[A-Z_]+)`").FindAllStringSubmatch(text, -1) {
		if !variables[name[1]] {
			t.Errorf("the documentation names the variable %s, which nothing reads", name[1])
		}
	}
	metrics := readFile(t, "../../metrics.go")
	for _, name := range regexp.MustCompile("ratebatch_agent_([a-z_]+)").FindAllStringSubmatch(text, -1) {
		if !strings.Contains(metrics, `"`+name[1]+`"`) && !strings.Contains(metrics, `"ratebatch_agent_`+name[1]+`"`) {
			t.Errorf("the documentation names the metric %s, which there is not", name[0])
		}
	}
	example := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(text)
	c, err := load(map[string]string{"config": secretFile(t, example[1])}, none)
	if err != nil || len(c.nodes()) != 2 || c.nodes()[1].RegionName != "RegionTwo" || c.nodes()[1].Username != "nova" {
		t.Errorf("the example: %v, %+v", err, c.Nodes)
	}
	d := defaults()
	if time.Duration(d.Interval) != time.Minute || time.Duration(d.Spool.MaxAge) != 24*time.Hour || d.Spool.MaxBytes != 2<<30 || d.topics() != wire.DefaultTopics() {
		t.Error("the defaults are not those of the documentation")
	}
}
