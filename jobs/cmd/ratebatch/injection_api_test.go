package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ratebatch/ratebatch/ratebatch/engine"
	"github.com/ratebatch/ratebatch/ratebatch/sqltext"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// hostileAsk sends a request with a hostile text in one place: it is answered or
// refused, and what is said of it is not the server's own complaint.
func hostileAsk(t *testing.T, s *served, what, method, path, body string) {
	t.Helper()
	status, _, answer := s.ask(t, method, path, body)
	if status >= 500 || strings.Contains(string(answer), "DB::Exception") {
		t.Errorf("%s: %s %.200s %.200s: %d %.500s", what, method, path, body, status, answer)
	}
}

// Every parameter of every operation of both APIs takes hostile texts: none
// reaches the database as anything but a value, and reading changes nothing.
func TestHostileRequestsAreValues(t *testing.T) {
	flags, e, clock := kittyCloud(t)
	s := startServeAt(t, clock, append(flags, "--cloudkitty-api", "--no-auth", "--cloudkitty-listen", "127.0.0.1:0")...)
	b := &billed{T: t, e: e, s: store.New(e.Conn(), e.Database()), flags: flags}
	texts := hostile()
	texts["a megabyte"] = strings.Repeat("x", 900_000)
	names := slices.Sorted(maps.Keys(texts))
	// Each place takes a few of them in turn, and all of them with
	// RATEBATCH_TEST_FAULTS=all.
	turn, few := 0, 4
	if os.Getenv(envFaults) == "all" {
		few = len(names)
	}
	some := func() (out []string) {
		for range few {
			out = append(out, names[turn%len(names)])
			turn++
		}
		return out
	}
	escaped := map[string]string{}
	for name, x := range texts {
		escaped[name] = url.QueryEscape(x)
	}

	document, _ := openAPI(t)
	usual := map[string]string{"by": "cpu", "q": "vm", "begin": "2026-10-01T00:00:00Z", "project": "pa", "month": "2026-10"}
	n := 0
	b.changes("reading by the API", func() {
		for path, methods := range document["paths"].(map[string]any) {
			for method, raw := range methods.(map[string]any) {
				if method == "post" {
					for _, name := range some() {
						item, _ := json.Marshal(map[string]any{"metric": texts[name], "qty": "1", "unit": texts[name], "attributes": map[string]string{texts[name]: texts[name]}})
						hostileAsk(t, s, name, http.MethodPost, "/api/v1"+path, `{"items":[`+string(item)+`]}`)
						n++
					}
					continue
				}
				for _, p := range apiParameters(document, raw.(map[string]any)) {
					for _, name := range some() {
						if name == "a megabyte" {
							continue // no address is so long
						}
						at, query := path, "?"
						for _, other := range apiParameters(document, raw.(map[string]any)) {
							value := url.QueryEscape(usual[other.name])
							if other.name == p.name {
								value = escaped[name]
							}
							switch {
							case other.in == "path" && other.name == p.name:
								at = strings.Replace(at, "{"+p.name+"}", url.PathEscape(texts[name]), 1)
							case other.in == "path":
								at = strings.Replace(at, "{"+other.name+"}", "1", 1)
							case other.name == p.name || other.required:
								query += other.name + "=" + value + "&"
							}
						}
						hostileAsk(t, s, name, http.MethodGet, "/api/v1"+at+query, "")
						n++
					}
				}
			}
		}
	})
	if n < 250 {
		t.Errorf("only %d requests were sent", n)
	}

	// CloudKitty's client was seen to send these; each of their values in turn.
	k := &served{url: s.kitty}
	sent := map[string]bool{}
	before := n
	b.changes("CloudKitty's API", func() {
		for _, r := range recordedCalls(t) {
			query, err := url.ParseQuery(r.Query)
			if err != nil {
				t.Fatal(err)
			}
			var body map[string]any
			_ = json.Unmarshal(r.Body, &body) // null: none
			for key := range query {
				for _, name := range some() {
					if name == "a megabyte" || sent[r.Method+r.Path+key+name] {
						continue
					}
					sent[r.Method+r.Path+key+name] = true
					changed := maps.Clone(query)
					changed[key] = []string{texts[name]}
					hostileAsk(t, k, name, r.Method, r.Path+"?"+changed.Encode(), compact(r.Body))
					if key == "filters" {
						changed[key] = []string{"project_id:" + texts[name]}
						hostileAsk(t, k, name, r.Method, r.Path+"?"+changed.Encode(), compact(r.Body))
					}
					n++
				}
			}
			for key, value := range body {
				for _, name := range some() {
					if _, text := value.(string); !text || sent[r.Method+r.Path+key+name] {
						continue
					}
					sent[r.Method+r.Path+key+name] = true
					changed := maps.Clone(body)
					changed[key] = texts[name]
					packed, err := json.Marshal(changed)
					if err != nil {
						t.Fatal(err)
					}
					hostileAsk(t, k, name, r.Method, r.Path+"?"+r.Query, string(packed))
					n++
				}
			}
		}
	}, "scopes", "reprocess_schedules", "period_commits", "job_runs", "leases", "plain_months", "complete_months", "late_looks")
	if n-before < 80 {
		t.Errorf("only %d requests of CloudKitty's client were changed", n-before)
	}
	for _, name := range names {
		x := texts[name]
		if len(x) > 100_000 || strings.ContainsRune(x, ',') { // a list
			continue
		}
		packed, err := json.Marshal(map[string]any{"scope_id": x, "last_processed_timestamp": "2026-10-01T00:00:00", "fetcher": x})
		if err != nil {
			t.Fatal(err)
		}
		hostileAsk(t, k, name, http.MethodPost, "/v2/scope", string(packed))
		want := string([]rune(x)) // JSON is UTF-8
		if strings.TrimSpace(want) == "" {
			continue
		}
		if got := b.text("SELECT toString(count()) FROM scopes WHERE scope = " + sqltext.String(want)); got == "0" {
			t.Errorf("%s: the scope was not stored as it is", name)
		}
	}
	if len(b.checksums()) < 30 {
		t.Error("tables are gone")
	}
	t.Logf("%d requests", n)
}

func compact(body json.RawMessage) string {
	if string(body) == "null" {
		return ""
	}
	return string(body)
}

// recordedCalls are the requests that the real client was seen to send.
func recordedCalls(t *testing.T) (out []recorded) {
	t.Helper()
	file, err := os.Open("../../../fixtures/vectors/client-calls.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		var r recorded
		if err := json.Unmarshal(scanner.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		if r.Method != "" {
			out = append(out, r)
		}
	}
	if err := scanner.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// apiParameter is one of an operation of openapi.yaml.
type apiParameter struct {
	name, in string
	required bool
}

func apiParameters(document, operation map[string]any) (out []apiParameter) {
	list, _ := operation["parameters"].([]any)
	for _, raw := range list {
		p := raw.(map[string]any)
		if ref, ok := p["$ref"].(string); ok {
			p = document["components"].(map[string]any)["parameters"].(map[string]any)[ref[strings.LastIndex(ref, "/")+1:]].(map[string]any)
		}
		required, _ := p["required"].(bool)
		out = append(out, apiParameter{p["name"].(string), p["in"].(string), required})
	}
	return out
}

// Names that become identifiers, or text within a statement that cannot have
// parameters, are quoted or refused before anything is sent.
func TestHostileIdentifiers(t *testing.T) {
	b := newBilled(t)
	b.changes("databases that do not exist", func() {
		for name, x := range hostile() {
			b.answers(name, "--database", x, "rate", "--now", at)
		}
	})
	for name, x := range hostile() {
		o := engine.Options{DataDir: b.flags[1], Database: x}
		if e, err := engine.Open(t.Context(), o); err == nil {
			e.Close()
			t.Errorf("%s: there is such a database", name)
		}
		statements, err := store.KafkaEngine{Brokers: []string{x}, Port: x, Instance: x, Disk: x, Group: x, Mechanism: x, User: x, Password: x, Cluster: x}.Statements()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, s := range statements {
			// The server reads the whole statement, and one only: what is hostile
			// is a literal or an identifier in it.
			var formatted string
			if err := b.e.Conn().QueryRow(store.WithParams(t.Context(), store.Params{"s": s}), "SELECT formatQuery({s:String})").Scan(&formatted); err != nil {
				t.Errorf("%s: %v in\n%.600s", name, err, s)
			} else if strings.Contains(formatted, ";") && !strings.Contains(x, ";") {
				t.Errorf("%s: two statements: %.600s", name, formatted)
			}
		}
		migrations, err := store.Migrations(store.MigrateOptions{Cluster: x})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, m := range migrations[:min(3, len(migrations))] {
			for _, s := range m.Statements {
				var formatted string
				if err := b.e.Conn().QueryRow(store.WithParams(t.Context(), store.Params{"s": s}), "SELECT formatQuery({s:String})").Scan(&formatted); err != nil {
					t.Errorf("%s: %s: %v in\n%.600s", name, m.Name, err, fmt.Sprint(s))
				}
			}
		}
	}
}
