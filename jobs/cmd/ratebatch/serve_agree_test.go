package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/jobs/web"
)

// clockOf is a clock that stands.
func clockOf(t testing.TB, text string) func() time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return func() time.Time { return at }
}

// tokensFile makes a token for each project and the file that admits them; the
// project "" is everybody's.
func tokensFile(t testing.TB, projects ...string) (file string, tokens map[string]string) {
	t.Helper()
	file, tokens = filepath.Join(t.TempDir(), "tokens"), map[string]string{}
	var lines []string
	for _, project := range projects {
		token, line, err := web.NewToken("of-"+project, project)
		if err != nil {
			t.Fatal(err)
		}
		tokens[project] = token
		lines = append(lines, line)
	}
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, tokens
}

// planFile is a plan on disk.
func planFile(t testing.TB, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// linesPages are addresses of each API that show lines or sums of them, other than
// the kept sums of days.
var (
	kittyPages = []string{"/v2/summary?groupby=time", "/v2/summary?groupby=id", "/v2/summary?groupby=flavor_name,project_id", "/v2/summary?filters=flavor_name:m1", "/v2/dataframes?limit=1", "/v2/dataframes?filters=type:instance&offset=7&limit=2", "/v1/storage/dataframes"}
	ownPages   = []string{"/api/v1/lines?limit=1", "/api/v1/lines?limit=1&bucket=unpriced", "/api/v1/lines?metric=instance", "/api/v1/rating/unpriced"}
)

// Whoever shows lines compares them with the commits each time, also when the
// day's sums were compared before: a line that is gone is nobody's zero.
func TestEveryReaderOfLinesComparesThemWithTheirCommits(t *testing.T) {
	flags, e := sharedDatabase(t)
	must(t, append(append(flags, "rate"), now...)...)
	file, tokens := tokensFile(t, "", "project-0", "project-1")
	s := startServeAt(t, clockOf(t, "2026-11-10T00:00:00Z"), append(flags, "--tokens", file, "--cloudkitty-api", "--cloudkitty-listen", "127.0.0.1:0")...)
	k := &served{url: s.kitty}
	each := func(when string, want map[string]int) {
		t.Helper()
		for project, want := range want {
			s.token, k.token = tokens[project], tokens[project]
			for of, paths := range map[*served][]string{s: ownPages, k: kittyPages} {
				for _, path := range paths {
					status, _, body := of.ask(t, http.MethodGet, path, "")
					if status != want || want == http.StatusInternalServerError && !strings.Contains(string(body), "not those that were committed") {
						t.Errorf("%s, token of %q, %s: %d, want %d: %.300s", when, project, path, status, want, body)
					}
				}
			}
		}
	}
	each("as it was rated", map[string]int{"": 200, "project-0": 200, "project-1": 200})
	s.token = tokens[""]
	var lines struct {
		Lines []struct {
			ID    string `json:"line_id"`
			Begin string `json:"begin"`
		}
	}
	s.get(t, "/api/v1/lines?limit=1&project=project-0", &lines)
	explain := "/api/v1/lines/" + lines.Lines[0].ID + "/explain?project=project-0&begin=" + lines.Lines[0].Begin
	if status, _, body := s.ask(t, http.MethodGet, explain, ""); status != http.StatusOK {
		t.Errorf("explain: %d %s", status, body)
	}
	if err := e.Conn().Exec(t.Context(), "ALTER TABLE rated_lines DELETE WHERE scope = 'project-0' AND metric = 'memory' AND begin = '2026-11-01 00:00:00' SETTINGS mutations_sync = 2"); err != nil {
		t.Fatal(err)
	}
	each("lines of project-0 are gone", map[string]int{"": 500, "project-0": 500, "project-1": 200})
	s.token = tokens[""]
	if status, _, body := s.ask(t, http.MethodGet, explain, ""); status != http.StatusInternalServerError || !strings.Contains(string(body), "state_differs") {
		t.Errorf("explain of a line whose period lacks others: %d %s", status, body)
	}
	// One more commit and the day is read anew; who sees one project is not told
	// which other one it is.
	if err := e.Conn().Exec(t.Context(), "INSERT INTO period_commits (scope, begin, end, revision, kind, run_id, currency) SELECT scope, begin, end, 1, 'rated', generateUUIDv4(), 'EUR' FROM period_commits WHERE scope = 'project-1' AND begin = '2026-11-01 00:00:00'"); err != nil {
		t.Fatal(err)
	}
	s.token = tokens["project-1"]
	if status, _, body := s.ask(t, http.MethodGet, "/api/v1/costs?month=2026-11", ""); status != http.StatusInternalServerError || strings.Contains(string(body), "project-0") {
		t.Errorf("costs of one project's token while another's lines are gone: %d %s", status, body)
	}
}

// Pages of a list belong together: what is rated again between two of them is
// said, and the list begins again.
func TestPagesOfLinesAreOfOneState(t *testing.T) {
	flags, _ := sharedDatabase(t)
	must(t, append(append(flags, "rate"), now...)...)
	s := startServeAt(t, clockOf(t, "2026-11-10T00:00:00Z"), flags...)
	var first struct {
		Next string `json:"next_cursor"`
	}
	const address = "/api/v1/lines?month=2026-11&project=project-0&limit=7"
	s.get(t, address, &first)
	s.get(t, address+"&cursor="+first.Next, &struct{}{})
	must(t, append(append(flags, "reprocess", "add", "--scope", "project-1", "--from", "2026-11-01T00:00:00Z", "--to", "2026-11-01T01:00:00Z", "--reason", "x"), now...)...)
	must(t, append(append(flags, "reprocess", "run"), now...)...)
	s.get(t, address+"&cursor="+first.Next, &struct{}{}) // another project's
	must(t, append(append(flags, "reprocess", "add", "--scope", "project-0", "--from", "2026-11-01T00:00:00Z", "--to", "2026-11-01T01:00:00Z", "--reason", "x"), now...)...)
	must(t, append(append(flags, "reprocess", "run"), now...)...)
	status, _, body := s.ask(t, http.MethodGet, address+"&cursor="+first.Next, "")
	if status != http.StatusConflict || !strings.Contains(string(body), "rated again since the first page") {
		t.Errorf("the second page of what was rated again: %d %s", status, body)
	}
	s.get(t, address, &first)
	s.get(t, address+"&cursor="+first.Next, &struct{}{})
}

// Prices of two currencies are never added up: CloudKitty's API has no place for
// a currency, so it refuses a window that holds both.
func TestCloudKittyRefusesToAddUpCurrencies(t *testing.T) {
	flags, _ := sharedDatabase(t)
	must(t, append(flags, "plan", "apply", planFile(t, strings.Replace(testPlan, "EUR", "USD", 1)), "--from", "2026-11-02")...)
	must(t, append(append(flags, "rate"), now...)...)
	s := startServeAt(t, clockOf(t, "2026-11-10T00:00:00Z"), append(flags, "--cloudkitty-api", "--no-auth", "--cloudkitty-listen", "127.0.0.1:0")...)
	k := &served{url: s.kitty}
	pages := append([]string{"/v2/summary?groupby=type", "/v2/summary?filters=type:memory", "/v1/report/summary?all_tenants=True", "/v1/report/summary?tenant_id=project-1", "/v1/report/total?all_tenants=True"}, kittyPages...)
	for _, path := range pages {
		mark := "?"
		if strings.Contains(path, mark) {
			mark = "&"
		}
		for window, want := range map[string]int{"begin=2026-11-01&end=2026-12-01": 400, "begin=2026-11-01&end=2026-11-02": 200, "begin=2026-11-02&end=2026-12-01": 200} {
			status, _, body := k.ask(t, http.MethodGet, path+mark+window, "")
			if status != want || want == http.StatusBadRequest && !strings.Contains(string(body), "EUR and USD") {
				t.Errorf("%s %s: %d, want %d: %.300s", path, window, status, want, body)
			}
		}
	}
}
