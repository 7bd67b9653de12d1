package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The commands of the README, in its order, in folders of the test's own; the
// demo prints what the README says, but for times and the engine's address.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	shown := regexp.MustCompile(`(?s)<!-- demo -->\n` + "```\n(.*?)```").FindStringSubmatch(string(text))
	if shown == nil {
		t.Fatal("the README shows no demo")
	}
	if got, want := steady(must(t, "demo")), steady(shown[1]); !strings.HasPrefix(got, want) {
		t.Errorf("the demo printed\n%s\nthe README says\n%s", got, want)
	}
	commands := regexp.MustCompile(`(?m)^    bin/ratebatch (.*)$`).FindAllStringSubmatch(string(text), -1)
	if len(commands) < 8 {
		t.Fatalf("only %d commands were found in the README", len(commands))
	}
	for _, match := range commands {
		line, _, _ := strings.Cut(match[1], " #")
		line = strings.NewReplacer("/tmp/billing", filepath.Join(dir, "billing"), "fixtures/", root+"/fixtures/").Replace(line)
		must(t, words(line)...)
	}
}

// words splits a command line as a shell does, for plain words and "…".
func words(line string) []string {
	var out []string
	for _, m := range regexp.MustCompile(`"([^"]*)"|(\S+)`).FindAllStringSubmatch(line, -1) {
		out = append(out, m[1]+m[2])
	}
	return out
}

// steady leaves out what differs from run to run.
func steady(text string) string {
	text = regexp.MustCompile(` +[0-9]+\.[0-9] s  `).ReplaceAllString(text, " … s  ")
	text = regexp.MustCompile(`ClickHouse \S+ at .*`).ReplaceAllString(text, "ClickHouse")
	text = regexp.MustCompile(`digest [0-9a-f]+`).ReplaceAllString(text, "digest")
	return text
}
