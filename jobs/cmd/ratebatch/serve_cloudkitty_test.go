package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/jobs/web"
	"github.com/ratebatch/ratebatch/ratebatch/engine"
	"github.com/ratebatch/ratebatch/ratebatch/engine/enginetest"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

const kittyPlan = `
currency: EUR
groups: [g1]
services:
  - name: instance
    fields:
      - name: flavor_name
        mappings:
          - {id: 00000000-0000-4000-8000-000000000031, value: m1, cost: "0.1", type: flat, group: g1}
  - name: memory
    mappings:
      - {cost: "0.25", type: flat}
    thresholds:
      - {id: 00000000-0000-4000-8000-000000000041, level: "10", cost: "0.9", type: rate}
`

// kittyCloud has two projects' first days of October 2026, rated.
func kittyCloud(t testing.TB) (flags []string, e *engine.Engine, clock func() time.Time) {
	t.Helper()
	o := enginetest.Options(t)
	flags = []string{"--data", o.DataDir, "--database", o.Database}
	must(t, append(flags, "migrate", "--retention", "40y")...)
	o.Create = true
	e, err := engine.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	if err := e.Conn().Exec(t.Context(), `INSERT INTO instance_metrics_hourly (bucket, region, instance_uuid, project_id, flavor_name, vcpus, instance_name, samples, samples_ended, covered_seconds, memory_actual_byte_seconds)
		SELECT toDateTime('2026-10-01 00:00:00', 'UTC') + 3600 * intDiv(number, 4), 'one', reinterpret(sipHash128(number % 4), 'UUID'), if(number % 2 = 0, 'pa', 'pb'), 'm1', 1, 'vm', 60, 60, 3600, toDecimal128(1073741824 * 3600, 3)
		FROM numbers(4 * 194)`); err != nil {
		t.Fatal(err)
	}
	must(t, append(flags, "watermark", "--region", "one", "--until", "2026-10-09T02:00:00Z")...)
	file := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(file, []byte(kittyPlan), 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, append(flags, "plan", "apply", file)...)
	must(t, append(flags, "rate", "--now", "2026-10-09T05:00:00Z")...)
	at := time.Date(2026, 10, 9, 5, 0, 0, 0, time.UTC)
	return flags, e, func() time.Time { return at }
}

// recorded is one request of the real client.
type recorded struct {
	Cmd    string          `json:"cmd"`
	Method string          `json:"method"`
	Path   string          `json:"path"`
	Query  string          `json:"query"`
	Body   json.RawMessage `json:"body"`
	Status int             `json:"status"`
	Then   []struct {
		Method string          `json:"method"`
		Path   string          `json:"path"`
		Query  string          `json:"query"`
		Body   json.RawMessage `json:"body"`
		Status int             `json:"status"`
	} `json:"then"`
}

// Every request that the real client was seen to send gets the status that it
// expects, or, where it would change prices, 405 with what to do instead.
func TestCloudKittyAnswersTheRecordedClient(t *testing.T) {
	flags, e, clock := kittyCloud(t)
	s := startServeAt(t, clock, append(flags, "--cloudkitty-api", "--no-auth", "--cloudkitty-listen", "127.0.0.1:0")...)
	k := &served{url: s.kitty}

	var services struct {
		Services []struct {
			ID   string `json:"service_id"`
			Name string `json:"name"`
		} `json:"services"`
	}
	k.get(t, "/v1/rating/module_config/hashmap/services/", &services)
	if len(services.Services) != 2 {
		t.Fatalf("services: %+v", services)
	}
	ids := map[string]string{"00000000-0000-4000-8000-000000000001": services.Services[0].ID, "00000000-0000-4000-8000-000000000002": services.Services[1].ID}
	var fields struct {
		Fields []struct {
			ID string `json:"field_id"`
		} `json:"fields"`
	}
	k.get(t, "/v1/rating/module_config/hashmap/fields/?service_id="+services.Services[0].ID, &fields)
	var groups struct {
		Groups []struct {
			ID string `json:"group_id"`
		} `json:"groups"`
	}
	k.get(t, "/v1/rating/module_config/hashmap/groups/", &groups)
	ids["00000000-0000-4000-8000-000000000011"], ids["00000000-0000-4000-8000-000000000021"] = fields.Fields[0].ID, groups.Groups[0].ID
	replace := func(text string) string {
		for from, to := range ids {
			text = strings.ReplaceAll(text, from, to)
		}
		return text
	}
	file, err := os.Open("../../../fixtures/vectors/client-calls.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, 1<<20)
	n := 0
	send := func(cmd, method, path, query string, body json.RawMessage, want int) {
		t.Helper()
		n++
		text := ""
		if string(body) != "null" {
			text = replace(string(body))
		}
		status, header, answer := k.ask(t, method, replace(path+"?"+query), text)
		if want == http.StatusFound { // the client would repeat it 31 times
			want = http.StatusNoContent
		}
		writes := method != http.MethodGet && strings.Contains(path, "module_config/hashmap") || method == http.MethodPut && strings.Contains(path, "rating/modules") && status == http.StatusMethodNotAllowed
		if writes {
			want = http.StatusMethodNotAllowed
			if !strings.Contains(string(answer), "plan apply") {
				t.Errorf("%s: a refused write does not say what to do: %s", cmd, answer)
			}
		}
		if status != want || header.Get("x-openstack-request-id") == "" {
			t.Errorf("%s: %s %s?%s: %d, want %d: %s", cmd, method, path, query, status, want, answer)
		}
	}
	for scanner.Scan() {
		var r recorded
		if err := json.Unmarshal(scanner.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		if r.Method == "" {
			continue // refused by the client itself
		}
		send(r.Cmd, r.Method, r.Path, r.Query, r.Body, r.Status)
		for _, x := range r.Then {
			send(r.Cmd, x.Method, x.Path, x.Query, x.Body, x.Status)
		}
	}
	if n < 60 {
		t.Errorf("%d requests were replayed", n)
	}

	var resetsBefore uint64
	if err := e.Conn().QueryRow(t.Context(), "SELECT countIf(kind = 'reset') FROM period_commits").Scan(&resetsBefore); err != nil {
		t.Fatal(err)
	}

	// Our numbers, whichever way they are asked for.
	var want string
	if err := e.Conn().QueryRow(t.Context(), "SELECT toString(sum(toDecimal256(price, 18))) FROM rated").Scan(&want); err != nil {
		t.Fatal(err)
	}
	const october = "begin=2026-10-01&end=2026-11-01"
	var summary struct {
		Total   int
		Columns []string
		Results [][]any
	}
	for query, rows := range map[string]int{"": 1, "&groupby=type": 3, "&groupby=type,project_id": 6, "&groupby=id": 4, "&groupby=time-d,project_id": 18, "&groupby=time": 194} {
		k.get(t, "/v2/summary?limit=1000&"+october+query, &summary)
		sum := 0.0
		for _, row := range summary.Results {
			sum += row[3].(float64)
		}
		if summary.Total != rows || fmt.Sprintf("%.4f", sum) != fmt.Sprintf("%.4f", number(t, want)) {
			t.Errorf("summary %s: %d rows, want %d; %.4f, want %s (%v)", query, summary.Total, rows, sum, want, summary.Columns)
		}
	}
	var total string
	k.get(t, "/v1/report/total/?all_tenants=True&begin=2026-10-01+00%3A00%3A00&end=2026-11-01", &total)
	if number(t, total) != number(t, want) {
		t.Errorf("total %s, want %s", total, want)
	}
	var frames struct {
		Total      int
		Dataframes []struct {
			Usage map[string][]any
		}
	}
	k.get(t, "/v2/dataframes?limit=2&offset=3&filters=type:instance,project_id:pa&"+october, &frames)
	if frames.Total != 2*194 || len(frames.Dataframes) != 2 {
		t.Errorf("dataframes: %+v", frames)
	}
	for path, want := range map[string]int{"/v2/summary?nosuch=1": 400, "/v2/summary?begin=1&end=2": 400, "/v2/summary?groupby=time-x": 400, "/v2/summary?filters=a": 400, "/v2/summary?limit=0": 400, "/v2/summary/": 404, "/v2/dataframes?begin=2026-01-01&end=2026-02-01": 404,
		"/v2/scope?scope_id=nosuch": 404, "/v2/scope?active=false": 400, "/v2/task/reprocesses?order=up": 400, "/v1/rating/modules/zz": 404, "/v1/nosuch": 405, "/v2/nosuch": 404, "/": 200, "/healthcheck": 200} {
		if status, _, body := k.ask(t, http.MethodGet, path, ""); status != want {
			t.Errorf("%s: %d, want %d: %s", path, status, want, body)
		}
	}
	// While a run is rating, or for a web page of another origin, nothing is forgotten; nor is more than was asked for.
	state := store.New(e.Conn(), e.Database())
	held := store.Params{"name": "rate", "holder": "elsewhere boot 1 1 run", "state": "claimed", "claimed_at": time.Now()}
	if err := state.Exec(t.Context(), "lease_beat", held); err != nil {
		t.Fatal(err)
	}
	const all = `{"all_scopes":true,"last_processed_timestamp":"2026-10-01T00:00:00Z"`
	if status, _, answer := k.ask(t, http.MethodPut, "/v2/scope", all+"}"); status != http.StatusConflict || !strings.Contains(string(answer), "rating at this moment") {
		t.Errorf("a reset beside a run: %d %s", status, answer)
	}
	held["state"] = "released"
	if err := state.Exec(t.Context(), "lease_beat", held); err != nil {
		t.Fatal(err)
	}
	for _, origin := range []string{"https://evil.example", "null", "http://localhost.evil.example:8889"} {
		if status, _, answer := k.ask(t, http.MethodPost, "/v2/task/reprocesses", `{"scope_ids":["ALL"],"start_reprocess_time":"2026-10-01","end_reprocess_time":"2026-10-02","reason":"x"}`, "Origin", origin); status != http.StatusForbidden {
			t.Errorf("a page of %s: %d %s", origin, status, answer)
		}
	}
	for more, want := range map[string]int{`,"scope_key":"domain_id"}`: 404, `,"fetcher":"keystone"}`: 400, `,"collector":["x"]}`: 400} {
		if status, _, answer := k.ask(t, http.MethodPut, "/v2/scope", all+more); status != want {
			t.Errorf("PUT /v2/scope with %s: %d, want %d: %s", more, status, want, answer)
		}
	}
	var resets uint64
	if err := e.Conn().QueryRow(t.Context(), "SELECT countIf(kind = 'reset') FROM period_commits").Scan(&resets); err != nil || resets != resetsBefore {
		t.Errorf("%d resets, want none but the %d of before (%v)", resets, resetsBefore, err)
	}
	for body, want := range map[string]int{`{"scope_id":"pa"}`: 400, `{"scope_id":"pa","all_scopes":true,"state":"2026-10-01"}`: 400, `{"scope_id":"nosuch","state":"2026-10-01"}`: 404, `{"scope_id":"pa","state":"2026-10-09T02:30:00"}`: 400, `{"scope_id":"pa","last_processed_timestamp":"2026-10-08T00:00:00Z"}`: 202} {
		if status, _, answer := k.ask(t, http.MethodPut, "/v2/scope", body); status != want {
			t.Errorf("PUT /v2/scope %s: %d, want %d: %s", body, status, want, answer)
		}
	}
	var scopes struct {
		Results []struct {
			Processed string `json:"last_processed_timestamp"`
			State     string `json:"state"`
		}
	}
	k.get(t, "/v2/scope?scope_id=pa", &scopes)
	if len(scopes.Results) != 1 || scopes.Results[0].State != "2026-10-08T00:00:00+00:00" || scopes.Results[0].State != scopes.Results[0].Processed {
		t.Errorf("scope after its reset: %+v", scopes)
	}
}

func number(t testing.TB, text string) float64 {
	t.Helper()
	var f float64
	if _, err := fmt.Sscan(text, &f); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return f
}

// A project's token sees its project, whatever it asks for, and may change
// nothing.
func TestCloudKittyProjectTokenSeesItsProjectOnly(t *testing.T) {
	flags, _, clock := kittyCloud(t)
	own, line, err := web.NewToken("own", "pa")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startServeAt(t, clock, append(flags, "--tokens", file, "--cloudkitty-api", "--cloudkitty-listen", "127.0.0.1:0")...)
	k := &served{url: s.kitty}
	if status, header, body := k.ask(t, http.MethodGet, "/v2/summary", ""); status != http.StatusUnauthorized || !strings.HasPrefix(header.Get("WWW-Authenticate"), "Keystone uri=") || !strings.Contains(string(body), `"code":401`) {
		t.Errorf("without a token: %d %s", status, body)
	}
	k.token = own
	for _, path := range []string{"/v2/summary?groupby=project_id", "/v2/summary?groupby=project_id&filters=project_id:pb", "/v2/summary?groupby=project_id,id", "/v2/dataframes", "/v2/dataframes?filters=project_id:pb",
		"/v1/report/summary?groupby=tenant_id", "/v1/report/total", "/v1/storage/dataframes", "/v1/info/config/", "/v2/rating/modules"} {
		status, _, body := k.ask(t, http.MethodGet, path, "")
		if status != http.StatusOK || strings.Contains(string(body), `"pb"`) {
			t.Errorf("%s: %d %.500s", path, status, body)
		}
	}
	for _, path := range []string{"/v2/scope", "/v2/task/reprocesses", "/v1/report/tenants", "/v1/report/summary?tenant_id=pb", "/v1/report/total?all_tenants=True", "/v1/storage/dataframes?tenant_id=pb", "/v1/rating/modules/", "/v1/rating/module_config/hashmap/services"} {
		if status, _, body := k.ask(t, http.MethodGet, path, ""); status != http.StatusForbidden || strings.Contains(string(body), "pb") {
			t.Errorf("%s: %d, want 403: %.300s", path, status, body)
		}
	}
	for _, method := range []string{http.MethodPut, http.MethodPost, http.MethodPatch} {
		if status, _, body := k.ask(t, method, "/v2/scope", `{"scope_id":"pa","active":0,"state":"2026-10-01"}`); status != http.StatusForbidden {
			t.Errorf("%s /v2/scope: %d, want 403: %s", method, status, body)
		}
	}
}

// The real client prints our numbers. It comes with Debian's package
// python3-cloudkittyclient; CI installs it where it can.
func TestCloudKittyRealClient(t *testing.T) {
	client, err := exec.LookPath("cloudkitty")
	if err != nil {
		t.Skip("cloudkitty is not installed (Debian: apt-get install python3-cloudkittyclient)")
	}
	flags, _, clock := kittyCloud(t)
	s := startServeAt(t, clock, append(flags, "--cloudkitty-api", "--no-auth", "--cloudkitty-listen", "127.0.0.1:0")...)
	for command, want := range map[string]string{
		"--os-rating-api-version 2 summary get -g type -b 2026-10-01T00:00:00Z -e 2026-11-01T00:00:00Z":                                                                          "77.6",
		"--os-rating-api-version 2 scope state get":                                                                                                                              "2026-10-09T02:00:00+00:00",
		"--os-rating-api-version 2 dataframes get --limit 3 -b 2026-10-01T00:00:00Z -e 2026-11-01T00:00:00Z":                                                                     "0.1",
		"--os-rating-api-version 2 tasks reprocessing create --scope-id pa --start-reprocess-time 2026-10-01T00:00:00Z --end-reprocess-time 2026-10-02T00:00:00Z --reason wrong": "",
		"--os-rating-api-version 2 tasks reprocessing get":                                                                                                                       "",
		"summary get -b 2026-10-01T00:00:00Z -e 2026-11-01T00:00:00Z":                                                                                                            "271.6",
		"total get -a -b 2026-10-01T00:00:00Z -e 2026-11-01T00:00:00Z":                                                                                                           "271.6",
		"report tenant list":    "pb",
		"info metric list":      "instance",
		"info config get":       "flavor_name",
		"module list":           "hashmap",
		"module enable hashmap": "True",
		"hashmap service list":  "memory",
		"hashmap group list":    "g1",
	} {
		// The arguments are this table's, and the program is on PATH.
		cmd := exec.CommandContext(t.Context(), client, strings.Fields(command)...)
		cmd.Env = append(os.Environ(), "OS_AUTH_TYPE=cloudkitty-noauth", "OS_ENDPOINT="+s.kitty)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("cloudkitty %s: %v, want %q in\n%s", command, err, want, out)
		}
	}
}
