package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/jobs/web"
)

// scopedPlan has rules of another project beside the general ones.
const scopedPlan = `
currency: EUR
services:
  - name: instance
    mappings:
      - {cost: "0.02", type: flat}
      - {cost: "0.01", type: flat, scope: project-0002}
  - name: memory
    mappings:
      - {cost: "0.01", type: flat}
      - {cost: "0.005", type: flat, scope: project-0002}
`

// A project's token sees that project only: no answer of any endpoint names
// another project, its instances or its sums.
func TestServeProjectTokenSeesItsProjectOnly(t *testing.T) {
	plan := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(plan, []byte(scopedPlan), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := cloud(t, "20", plan)
	for _, project := range []string{"project-0001", "project-0002"} {
		must(t, append(flags, "scopes", "disable", project, "--reason", "does not pay")...)
	}
	file := filepath.Join(t.TempDir(), "tokens")
	all, line, err := web.NewToken("all", "")
	if err != nil {
		t.Fatal(err)
	}
	own, ownLine, err := web.NewToken("own", "project-0001")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(line+"\n# one project\n"+ownLine+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startServe(t, append(flags, "--tokens", file)...)
	for name, token := range map[string]string{"none": "", "wrong": "wrong"} {
		s.token = token
		if status, header, body := s.ask(t, http.MethodGet, "/api/v1/costs", ""); status != http.StatusUnauthorized || header.Get("WWW-Authenticate") == "" {
			t.Errorf("token %s: %d %s", name, status, body)
		}
	}
	if status, _, body := s.ask(t, http.MethodGet, "/api/v1/health", ""); status != http.StatusOK || strings.Contains(string(body), "newest_sample") {
		t.Errorf("health without a token: %d %s", status, body)
	}
	s.token = all
	foreign := requestsOf(t, s, "project-0002")
	calls := requests(t, s)
	s.token = own
	mine := requests(t, s)
	others := []string{"project-0002", "project-0003", foreign.instance, foreign.name}
	for id, paths := range mine {
		for _, path := range paths {
			method, body := http.MethodGet, ""
			if id == "quote" {
				method, body = http.MethodPost, `{"items":[{"metric":"instance","qty":"1"}]}`
			}
			status, _, text := s.ask(t, method, "/api/v1"+path, body)
			if status != http.StatusOK && status != http.StatusNotFound && !(status == http.StatusForbidden && (id == "runs" || id == "exports")) {
				t.Errorf("%s: %d %s", path, status, text)
			}
			for _, other := range others {
				if bytes.Contains(text, []byte(other)) {
					t.Errorf("%s names %s: %.1000s", path, other, text)
				}
			}
		}
	}
	// What the other sees is not found, whatever way it is asked for.
	i := foreign.instance
	for _, path := range []string{"/instances/" + i, "/instances/" + i + "/series", "/instances/" + i + "/costs", "/costs?project=project-0002", "/lines?project=project-0002", "/rating/late?project=project-0002", "/rating/unpriced?project=project-0002",
		calls["explainLine"][0][:strings.Index(calls["explainLine"][0], "?")] + "?project=project-0002&begin=2026-01-01T00:00:00Z", "/costs/download?format=csv&project=project-0002"} {
		if status, _, text := s.ask(t, http.MethodGet, "/api/v1"+path, ""); status != http.StatusNotFound {
			t.Errorf("%s: %d, want 404: %s", path, status, text)
		}
	}
	if status, _, text := s.ask(t, http.MethodPost, "/api/v1/quote", `{"project":"project-0002","items":[{"metric":"instance","qty":"1"}]}`); status != http.StatusNotFound {
		t.Errorf("quote for another project: %d %s", status, text)
	}
	for _, path := range []string{"/rating/runs", "/rating/exports"} {
		if status, _, text := s.ask(t, http.MethodGet, "/api/v1"+path, ""); status != http.StatusForbidden {
			t.Errorf("%s: %d, want 403: %s", path, status, text)
		}
	}
	var costs struct {
		Rows []struct{ Project, Price string }
	}
	s.get(t, "/api/v1/costs?group=project&compare=none", &costs)
	if len(costs.Rows) > 1 || len(costs.Rows) == 1 && costs.Rows[0].Project != "project-0001" {
		t.Errorf("costs of one project's token: %+v", costs.Rows)
	}
	_, _, text := s.ask(t, http.MethodGet, "/api/v1/costs/download?format=csv&month="+time.Now().UTC().Add(-12*time.Hour).Format("2006-01"), "")
	if bytes.Contains(text, []byte("project-0002")) || !bytes.Contains(text, []byte("project-0001")) {
		t.Errorf("download of one project's token: %.500s", text)
	}
	// The project's own state is told, without who changed it and why; what is not counted for it is not given as zero.
	var standing map[string]json.RawMessage
	s.get(t, "/api/v1/rating/status", &standing)
	if states := string(standing["scope_states"]); states != `{"project-0001":{"active":false}}` {
		t.Errorf("scope states: %s", states)
	}
	if due, ok := standing["due_periods"]; ok {
		t.Errorf("due periods of one project: %s", due)
	}
	// A token that is taken out of the file is refused without a restart.
	if err := os.WriteFile(file, []byte(line+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if status, _, _ := s.ask(t, http.MethodGet, "/api/v1/session", ""); status == http.StatusUnauthorized {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Error("a token that was taken out is still taken")
}

type foreignInstance struct{ instance, name string }

func requestsOf(t testing.TB, s *served, project string) foreignInstance {
	t.Helper()
	var found struct {
		Instances []struct {
			ID      string `json:"id"`
			Name    string `json:"name"`
			Project string `json:"project_id"`
		} `json:"instances"`
	}
	s.get(t, "/api/v1/search?limit=50&q=vm-", &found)
	for _, x := range found.Instances {
		if x.Project == project {
			return foreignInstance{x.ID, x.Name}
		}
	}
	t.Fatalf("no instance of %s in %+v", project, found)
	return foreignInstance{}
}
