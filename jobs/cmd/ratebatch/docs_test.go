package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ratebatch/ratebatch/fixtures/kafkatest"
	"github.com/ratebatch/ratebatch/ratebatch/engine"
	"github.com/ratebatch/ratebatch/ratebatch/engine/enginetest"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

// envUpdateDocs makes TestDocuments write what commands print into the
// documents, instead of comparing.
const envUpdateDocs = "RATEBATCH_TEST_UPDATE_DOCS"

// document is a file whose commands are run, in its order, in a folder and a
// database of its own.
type document struct {
	file string
	// by names the test that runs its commands instead of TestDocuments.
	by string
	// setup is what has to be there before the first command; with one, the tables
	// are there too.
	setup string
	// broker starts a Kafka broker, which broker1:9092 and localhost:9092 mean.
	broker bool
	// replace has pairs: what stands for something of the reader's, and ours.
	replace []string
	// except has commands that are not run, by how they begin, each with its
	// reason; a line's end after it makes it the whole command.
	except map[string]string
}

// Reasons why a command is not run here.
const (
	inCI      = "CI runs it (.ci/run)"
	elsewhere = "needs what only the reader has: "
	neverEnds = "runs until it is stopped, as in "
	asRoot    = "installs a service, as root"
)

func TestDocuments(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("needs bash")
	}
	copies := &practiced{of: enginetest.Options(t)}
	for _, d := range documents {
		if d.by != "" {
			continue
		}
		t.Run(strings.ReplaceAll(strings.TrimSuffix(d.file, ".md"), "/", "_"), func(t *testing.T) { d.run(t, copies) })
	}
}

// practiced is the database as practice leaves it, once it has run.
type practiced struct {
	of engine.Options
	at *kept
}

// setup does what has to be there before a document's first command.
func (p *practiced) setup(t *testing.T, s *shell, text string) {
	t.Helper()
	after, practices := strings.CutPrefix(text, practice)
	b := &billed{T: t, e: s.shared}
	if practices && p.at != nil {
		b.restore(*p.at)
		text = practicePlan + "true" + after
	} else if practices && after != "" {
		p.setup(t, s, practice) // keep it without what comes after
		text = "true" + after
	}
	if out, err := s.run(text); err != nil {
		t.Fatalf("setup: %v\n%s", err, out)
	}
	if practices && p.at == nil {
		k := b.keep(p.of)
		p.at = &k
	}
}

// The tests that run commands instead of TestDocuments are there.
func TestReasonsOfTheListNameTests(t *testing.T) {
	declared := map[string]bool{}
	declares := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for _, pattern := range []string{"*", "*/*", "*/*/*", "*/*/*/*", "*/*/*/*/*"} {
		found, err := filepath.Glob(filepath.Join("../../..", pattern+"_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range found {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range declares.FindAllStringSubmatch(string(text), -1) {
				declared[m[1]] = true
			}
		}
	}
	names := regexp.MustCompile(`\bTest[A-Z]\w+`)
	for _, d := range documents {
		reasons := []string{d.by}
		for _, reason := range d.except {
			reasons = append(reasons, reason)
		}
		for _, name := range names.FindAllString(strings.Join(reasons, " "), -1) {
			if !declared[name] {
				t.Errorf("%s: there is no %s", d.file, name)
			}
		}
	}
}

// What documents make, with or without a sentence around it, are targets of the
// Makefile.
func TestMakeTargetsOfDocumentsExist(t *testing.T) {
	makefile, err := os.ReadFile("../../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	targets := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z-]+):`).FindAllStringSubmatch(string(makefile), -1) {
		targets[m[1]] = true
	}
	inline := regexp.MustCompile("`(make [^`]*)`")
	for _, d := range documents {
		var lines []string
		for _, c := range d.commands(t) {
			lines = append(lines, c.text)
		}
		data, err := os.ReadFile(filepath.Join("../../..", d.file))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range inline.FindAllStringSubmatch(string(data), -1) {
			lines = append(lines, m[1])
		}
		for _, line := range lines {
			words := shellWords(line)
			if len(words) == 0 || words[0] != "make" {
				continue
			}
			for _, word := range words[1:] {
				if !strings.Contains(word, "=") && !targets[word] {
					t.Errorf("%s: %s: the Makefile has no %s", d.file, line, word)
				}
			}
		}
	}
}

// Every document is in the list, and so no command is in none.
func TestEveryDocumentIsListed(t *testing.T) {
	listed := map[string]bool{}
	for _, d := range documents {
		listed[d.file] = true
		commands := d.commands(t)
		for prefix, reason := range d.except {
			if reason == "" || !slices.ContainsFunc(commands, func(c command) bool { return strings.HasPrefix(c.text+"\n", prefix) }) {
				t.Errorf("%s: the exception %q has no reason or no command", d.file, prefix)
			}
		}
	}
	root := "../../.."
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name, relErr := filepath.Rel(root, path)
		if err != nil || relErr != nil {
			return err
		}
		if entry.IsDir() {
			if name == "docs/reference" {
				return fs.SkipDir // generated; examples of --help
			}
			if name != "." && name != "docs" && name != "docs/howto" && name != "deploy" {
				return fs.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(name, ".md") && name != "CHANGELOG.md" && !listed[name] {
			t.Errorf("%s is in no list: what runs its commands?", name)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// command is one command of a document with what the document says it prints.
type command struct {
	text     string
	checked  bool // there is an output to compare
	want     []string
	from, to int // lines of the document that hold want
}

// programs are what an indented line begins with if it is a command.
var programs = regexp.MustCompile(`^([A-Z_0-9]+=\S+ )*(bin/)?(ratebatch|ratebatch-agent|make|openssl|kubectl|systemctl|install|runuser|npm|go|cloudkitty|docker|curl|duckdb|python3?|git|clickhouse-client)( |$)`)

var heredoc = regexp.MustCompile(`<<-?'?([A-Z]+)'?`)

// commands finds the commands of a document: in blocks of sh and console, and
// indented lines that begin with a program's name.
func (d *document) commands(t *testing.T) []command {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("../../..", d.file))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(data), "\n")
	var out []command
	block := ""
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		if kind, ok := strings.CutPrefix(strings.TrimSpace(line), "```"); ok {
			if block == "" {
				block = kind + " "
			} else {
				block = ""
			}
			continue
		}
		var text string
		switch {
		case block == "sh ":
			text = line
		case block == "console ":
			text, _ = strings.CutPrefix(line, "$ ")
			if text == line {
				continue // of an output; it was taken with its command
			}
		case block == "" && strings.HasPrefix(line, "    ") && programs.MatchString(strings.TrimSpace(line)):
			text = strings.TrimSpace(line)
		default:
			continue
		}
		if strings.TrimSpace(text) == "" || strings.HasPrefix(text, "#") {
			continue
		}
		for end := heredoc.FindStringSubmatch(text); end != nil && i+1 < len(lines); {
			i++
			text += "\n" + lines[i]
			if lines[i] == end[1] {
				break
			}
		}
		for strings.HasSuffix(text, `\`) && i+1 < len(lines) {
			i++
			text += "\n" + lines[i]
		}
		c := command{text: text}
		if block == "console " {
			c.checked, c.from = true, i+1
			for c.to = c.from; !strings.HasPrefix(lines[c.to], "$ ") && !strings.HasPrefix(lines[c.to], "```"); c.to++ {
				c.want = append(c.want, lines[c.to])
			}
		}
		out = append(out, c)
	}
	return out
}

func (d *document) run(t *testing.T, copies *practiced) {
	s := newShell(t, d.setup != "")
	if d.setup != "" {
		copies.setup(t, s, d.setup)
	}
	commands := d.commands(t)
	pairs := append([]string{"bin/ratebatch", "ratebatch"}, d.replace...)
	if d.broker {
		address := strings.Join(kafkatest.Start(t, kafkatest.Config{}).Options.Brokers, ",")
		pairs = append(pairs, "broker1:9092", address, "localhost:9092", address)
	}
	ours := strings.NewReplacer(pairs...)
	printed := make([][]string, len(commands))
	ran := 0
	for i, c := range commands {
		if d.excepted(c.text) {
			continue
		}
		ran++
		out, err := s.run(ours.Replace(c.text))
		if err != nil {
			t.Fatalf("%s: %s\n%v\n%s", d.file, c.text, err, out)
		}
		printed[i] = strings.Split(strings.TrimRight(steadyUser(out), "\n"), "\n")
		if c.checked && os.Getenv(envUpdateDocs) == "" && !same(c.want, printed[i]) {
			t.Errorf("%s: %s prints\n%s\nthe document says\n%s\n(%s=1 writes what is printed into the document)", d.file, c.text, strings.Join(printed[i], "\n"), strings.Join(c.want, "\n"), envUpdateDocs)
		}
	}
	if ran == 0 && len(commands) > 0 {
		t.Skip("every command is an exception")
	}
	if os.Getenv(envUpdateDocs) != "" {
		d.update(t, commands, printed)
	}
}

func (d *document) excepted(text string) bool {
	for prefix := range d.except {
		if strings.HasPrefix(text+"\n", prefix) {
			return true
		}
	}
	return false
}

// update writes outputs that differ into the document.
func (d *document) update(t *testing.T, commands []command, printed [][]string) {
	path := filepath.Join("../../..", d.file)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(data), "\n")
	for i := len(commands) - 1; i >= 0; i-- {
		if c := commands[i]; c.checked && printed[i] != nil && !same(c.want, printed[i]) {
			lines = slices.Replace(lines, c.from, c.to, printed[i]...)
		}
	}
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
		t.Fatal(err)
	}
}

// shell runs commands one after the other; folder and variables last.
type shell struct {
	t          *testing.T
	state, dir string
	database   string // of the test's own; empty: the shared one
	shared     *engine.Engine
	env        []string
}

func newShell(t *testing.T, migrated bool) *shell {
	t.Helper()
	bin, root := t.TempDir(), t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(bin, "ratebatch")); err != nil {
		t.Fatal(err)
	}
	top, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(top, "fixtures"), filepath.Join(root, "fixtures")); err != nil {
		t.Fatal(err)
	}
	o := enginetest.Options(t)
	s := &shell{t: t, state: t.TempDir(), dir: root}
	if migrated {
		s.shared = storetest.Shared(t)
		o.Database = s.shared.Database()
	}
	if !migrated {
		s.database = o.Database
	}
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "RATEBATCH_") || strings.HasPrefix(entry, "RATEBATCH_ENGINE_") {
			s.env = append(s.env, entry)
		}
	}
	s.env = append(s.env, envProgram+"=1", "RATEBATCH_DATA="+o.DataDir, "RATEBATCH_DATABASE="+o.Database, "PATH="+bin+":"+os.Getenv("PATH"))
	return s
}

func (s *shell) run(text string) (string, error) {
	script := fmt.Sprintf("cd %[2]q; [ -f %[1]q/env ] && . %[1]q/env && cd \"$(cat %[1]q/cwd)\"\nset -o pipefail\n%[3]s\ncode=$?; pwd > %[1]q/cwd; export -p > %[1]q/env; exit $code\n", s.state, s.dir, text)
	cmd := exec.CommandContext(s.t.Context(), "bash", "-c", script)
	cmd.Env, cmd.Dir = s.env, s.dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	printed := strings.ReplaceAll(out.String(), s.dir, "/home/anna/ratebatch-tutorial")
	if s.database != "" {
		printed = strings.ReplaceAll(printed, s.database, "ratebatch")
	}
	return printed, err
}

// What differs from run to run.
var unsteady = []struct {
	find *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "UUID"},
	{regexp.MustCompile(`\b[0-9a-f]{12,64}\b`), "HEX"},
	{regexp.MustCompile(`\b[0-9]+(\.[0-9]+)? ?(s|ms|kB|MB|B)\b`), "N"},
	// The months of the examples end before the 20th of November 2026; what is later is the clock.
	{regexp.MustCompile(`\b(2026-11-[23][0-9]|2026-12|20(2[7-9]|[3-9][0-9])-[0-9]{2})(-[0-9]{2})?(T[0-9:.]+Z|[ 0-9:.]*)`), "NOW"},
	{regexp.MustCompile(`\b[0-9]{2}:[0-9]{2}:[0-9]{2}\b`), "CLOCK"},
	{regexp.MustCompile(`(/tmp|/var/folders)/[^ :,]+`), "FOLDER"},
	{regexp.MustCompile(`[ \t]+`), " "},
	{regexp.MustCompile(`-{3,}|─{3,}`), "---"},
}

// passing lines are not in the documents: progress, which slow machines print;
// logs; and what is said for a month after the examples only.
var passing = regexp.MustCompile(`(?m)^([0-9:]{8} (INF|WRN) .*|[a-z ]+: [0-9]+ of [0-9]+ .*\([0-9]+%\)|host .* is silent: .*)\n`)

// steadyUser calls the user of this machine by a name of the documents, and
// leaves passing lines out.
func steadyUser(text string) string {
	text = passing.ReplaceAllString(text, "")
	if u, err := user.Current(); err == nil {
		return regexp.MustCompile(`\b`+regexp.QuoteMeta(u.Username)+`\b`).ReplaceAllString(text, "anna")
	}
	return text
}

// same compares an output with a document's, but for what differs from run to
// run; a line … stands for any number of lines.
func same(want, got []string) bool {
	clean := func(list []string) []string {
		var out []string
		for _, l := range list {
			for _, u := range unsteady {
				l = u.find.ReplaceAllString(l, u.with)
			}
			if l = strings.TrimSpace(l); l != "" {
				out = append(out, l)
			}
		}
		return out
	}
	return matches(clean(want), clean(got))
}

func matches(want, got []string) bool {
	if len(want) == 0 {
		return len(got) == 0
	}
	if want[0] == "…" {
		for i := range len(got) + 1 {
			if matches(want[1:], got[i:]) {
				return true
			}
		}
		return false
	}
	return len(got) > 0 && want[0] == got[0] && matches(want[1:], got[1:])
}

// The pages of docs/reference are what the program says.
func TestReferenceIsUpToDate(t *testing.T) {
	withoutVariables(t)
	dir := t.TempDir()
	must(t, "docs", "reference", dir)
	for _, name := range files(t, dir) {
		want, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join("../../../docs/reference", name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("docs/reference/%s is stale: write it with 'make build && bin/ratebatch docs reference docs/reference'", name)
		}
	}
	if written, there := files(t, dir), files(t, "../../../docs/reference"); !slices.Equal(written, there) {
		t.Errorf("docs/reference holds %v, the program writes %v", there, written)
	}
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// Links between documents lead somewhere.
func TestLinksOfDocuments(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#: ]+)(#[^)]*)?\)`)
	for _, d := range documents {
		data, err := os.ReadFile(filepath.Join("../../..", d.file))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(data), -1) {
			if _, err := os.Stat(filepath.Join("../../..", filepath.Dir(d.file), m[1])); err != nil {
				t.Errorf("%s links to %s, which there is not", d.file, m[1])
			}
		}
	}
}
