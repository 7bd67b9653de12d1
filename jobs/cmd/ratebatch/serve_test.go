package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/ratebatch/ratebatch/jobs/web"
	"github.com/ratebatch/ratebatch/ratebatch/engine/enginetest"
)

// served is a running serve.
type served struct {
	url   string // of the dashboard and its API
	kitty string // of CloudKitty's API, if it was asked for
	log   *syncBuffer
	token string
	roots *x509.CertPool // whom to trust over TLS; nil: whom the machine does
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

var (
	servedAt = regexp.MustCompile(`serving address=(\S+)`)
	kittyAt  = regexp.MustCompile(`address=(\S+) api=cloudkitty`)
)

// startServe runs serve in-process until the test ends.
func startServe(t testing.TB, args ...string) *served {
	t.Helper()
	return startServeAt(t, time.Now, args...)
}

// startServeAt is startServe with a clock of its own.
func startServeAt(t testing.TB, clock func() time.Time, args ...string) *served {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &served{log: &syncBuffer{}}
	done := make(chan int, 1)
	go func() {
		p := &program{stdin: strings.NewReader(""), stdout: io.Discard, stderr: s.log, now: clock}
		done <- p.run(ctx, append([]string{"serve", "--listen", "127.0.0.1:0", "--rate-limit", "100000", "--rate-burst", "100000"}, args...))
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case <-done:
		case <-time.After(30 * time.Second):
			t.Error("serve does not end")
		}
	})
	wantsKitty := slices.Contains(args, "--cloudkitty-api")
	for range 600 {
		if m := servedAt.FindStringSubmatch(s.log.String()); m != nil {
			s.url = m[1]
		}
		if m := kittyAt.FindStringSubmatch(s.log.String()); m != nil {
			s.kitty = m[1]
		}
		if s.url != "" && (!wantsKitty || s.kitty != "") {
			return s
		}
		select {
		case code := <-done:
			done <- code
			t.Fatalf("serve ended with %d: %s", code, s.log.String())
		case <-time.After(50 * time.Millisecond):
		}
	}
	t.Fatalf("serve does not listen: %s", s.log.String())
	return nil
}

// ask sends a request and gives status, headers and body.
func (s *served) ask(t testing.TB, method, path, body string, header ...string) (int, http.Header, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if s.token != "" {
		r.Header.Set("Authorization", "Bearer "+s.token)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	transport := &http.Transport{DisableCompression: true, ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: s.roots}}
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Header, text
}

func (s *served) get(t testing.TB, path string, into any) {
	t.Helper()
	status, _, body := s.ask(t, http.MethodGet, path, "")
	if status != http.StatusOK {
		t.Fatalf("GET %s: %d %s", path, status, body)
	}
	if err := json.Unmarshal(body, into); err != nil {
		t.Fatalf("GET %s: %v in %s", path, err, body)
	}
}

// cloud is a simulated cloud of 24 hours that ended now, rated; its flags.
func cloud(t testing.TB, instances, plan string) []string {
	t.Helper()
	o := enginetest.Options(t)
	flags := []string{"--data", o.DataDir, "--database", o.Database}
	must(t, append(flags, "migrate", "--retention", "40y")...)
	must(t, append(flags, "simulate", "--instances", instances, "--projects", "3", "--hours", "24")...)
	must(t, append(flags, "plan", "apply", plan)...)
	must(t, append(flags, "rate")...)
	return flags
}

// openAPI is the contract as a value, and its schemas.
func openAPI(t testing.TB) (map[string]any, func(ref string) *jsonschema.Schema) {
	t.Helper()
	text, err := os.ReadFile("../../web/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var raw any
	if err := yaml.Unmarshal(text, &raw); err != nil {
		t.Fatal(err)
	}
	packed, err := json.Marshal(raw)
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	if err := compiler.AddResource("openapi.json", value); err != nil {
		t.Fatal(err)
	}
	return value.(map[string]any), func(ref string) *jsonschema.Schema {
		schema, err := compiler.Compile("openapi.json" + ref)
		if err != nil {
			t.Fatalf("%s: %v", ref, err)
		}
		return schema
	}
}

// requests are one or more calls of every operation of the contract.
func requests(t testing.TB, s *served) map[string][]string {
	t.Helper()
	var found struct {
		Instances []struct {
			ID string `json:"id"`
		} `json:"instances"`
	}
	s.get(t, "/api/v1/search?q=vm-", &found)
	var lines struct {
		Lines []struct {
			ID      string `json:"line_id"`
			Project string `json:"project"`
			Begin   string `json:"begin"`
		} `json:"lines"`
	}
	// Of the last day: a month that has just begun has no lines yet.
	s.get(t, "/api/v1/lines?limit=1&begin="+time.Now().UTC().Add(-30*time.Hour).Format(time.RFC3339)+"&end="+time.Now().UTC().Format(time.RFC3339), &lines)
	if len(found.Instances) == 0 || len(lines.Lines) == 0 {
		t.Fatalf("no instance or no line: %+v %+v", found, lines)
	}
	i, l := found.Instances[0].ID, lines.Lines[0]
	return map[string][]string{
		"health": {"/health"}, "session": {"/session"}, "search": {"/search?q=vm", "/search?q=nothing-is-called-so"}, "projects": {"/projects"},
		"instance": {"/instances/" + i}, "instanceSeries": {"/instances/" + i + "/series", "/instances/" + i + "/series?range=12h", "/instances/" + i + "/series?range=24h", "/instances/" + i + "/series?range=7d"},
		"instanceCosts": {"/instances/" + i + "/costs", "/instances/" + i + "/costs?month=" + l.Begin[:7]}, "nodes": {"/nodes"},
		"nodeSeries":    {"/nodes/RegionOne/compute-001/series", "/nodes/RegionOne/compute-001/series?range=24h", "/nodes/RegionOne/compute-001/series?range=7d"},
		"nodeInstances": {"/nodes/RegionOne/compute-001/instances", "/nodes/RegionOne/compute-001/instances?order=disk&range=24h&limit=2"},
		"top":           {"/top?by=cpu", "/top?by=memory", "/top?by=network", "/top?by=disk", "/top?by=price"},
		"costs":         {"/costs?month=" + l.Begin[:7], "/costs?month=" + l.Begin[:7] + "&group=project,metric,day,month&limit=500", "/costs?group=&compare=none"},
		"costsDownload": {}, // no JSON; TestServeDownloads
		"lines":         {"/lines?month=" + l.Begin[:7], "/lines?bucket=unpriced", "/lines?instance=" + i},
		"explainLine":   {"/lines/" + l.ID + "/explain?project=" + l.Project + "&begin=" + l.Begin},
		"ratingStatus":  {"/rating/status"}, "runs": {"/rating/runs", "/rating/runs?job=rate&state=done"}, "late": {"/rating/late"}, "unpriced": {"/rating/unpriced"},
		"schedules": {"/rating/schedules"}, "exports": {"/rating/exports"}, "months": {"/rating/months"}, "plans": {"/plans"}, "plan": {"/plans/1", "/plans/current"},
		"planDiff": {"/plans/1/diff/2", "/plans/2/diff/1"}, "metrics": {"/metrics"}, "quote": {"/quote"},
	}
}

// Every operation of openapi.yaml is called, and every answer is what it says:
// nothing missing, nothing more.
func TestServeAnswersAsTheContractSays(t *testing.T) {
	flags := cloud(t, "20", "../../../fixtures/plans/demo.yaml")
	second := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(second, []byte(testPlan), 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, append(flags, "plan", "apply", second, "--from", "2030-01-01", "--force")...)
	must(t, append(flags, "export", "--to", t.TempDir(), "--month", time.Now().UTC().Add(-6*time.Hour).Format("2006-01"), "--partial")...)
	s := startServe(t, flags...)
	document, schema := openAPI(t)
	calls := requests(t, s)
	const quote = `{"items":[{"metric":"instance","qty":"720","attributes":{"flavor_name":"m1.01"}},{"metric":"memory","qty":"0.5"}]}`
	seen := map[string]bool{}
	for path, methods := range document["paths"].(map[string]any) {
		for method, raw := range methods.(map[string]any) {
			operation := raw.(map[string]any)
			id := operation["operationId"].(string)
			seen[id] = true
			if len(calls[id]) == 0 && id != "costsDownload" {
				t.Errorf("%s %s is not called", method, path)
			}
			for _, call := range calls[id] {
				body := ""
				if method == "post" {
					body = quote
				}
				status, header, text := s.ask(t, strings.ToUpper(method), "/api/v1"+call, body)
				if status != http.StatusOK || !strings.HasPrefix(header.Get("Content-Type"), "application/json") {
					t.Errorf("%s %s: %d %s", method, call, status, text)
					continue
				}
				content := operation["responses"].(map[string]any)["200"].(map[string]any)["content"].(map[string]any)["application/json"].(map[string]any)
				ref := content["schema"].(map[string]any)["$ref"].(string)
				value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
				if err != nil {
					t.Fatal(err)
				}
				if err := schema(ref).Validate(value); err != nil {
					t.Errorf("%s %s is no %s: %v\n%.2000s", method, call, ref, err, text)
				}
			}
		}
	}
	for id := range calls {
		if !seen[id] {
			t.Errorf("%s is not in the contract", id)
		}
	}
	for path, want := range map[string]int{
		"/nosuch": 404, "/costs?nosuch=1": 400, "/costs?month=2026-13": 400, "/costs?month=2026-01&begin=2026-01-01T00:00:00Z": 400, "/costs?limit=501": 400, "/costs?limit=1&limit=2": 400,
		"/lines?cursor=zz": 400, "/lines?bucket=x": 400, "/instances/zz": 400, "/instances/00000000-0000-4000-8000-000000000000": 404, "/top": 400, "/top?by=cpu'": 400, "/plans/99": 404,
		"/nodes/RegionOne/nosuch/series": 404, "/search": 400, "/quote": 405,
	} {
		status, _, text := s.ask(t, http.MethodGet, "/api/v1"+path, "")
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatalf("%s: %v in %s", path, err, text)
		}
		if err := schema("#/components/schemas/Error").Validate(value); err != nil || status != want {
			t.Errorf("%s: %d, want %d: %v %s", path, status, want, err, text)
		}
	}
}

// Figures are those of the view rated, and every page of lines adds up to them.
func TestServeCostsAreTheRatedLines(t *testing.T) {
	flags, e := database(t)
	must(t, append(append(flags, "rate"), now...)...)
	s := startServe(t, flags...)
	var want string
	if err := e.Conn().QueryRow(t.Context(), "SELECT toString(sum(toDecimal256(price, 18))) FROM rated").Scan(&want); err != nil {
		t.Fatal(err)
	}
	var costs struct {
		Totals []struct{ Currency, Price string }
		Rows   []struct{ Project, Metric, Day, Price string }
	}
	s.get(t, "/api/v1/costs?month=2026-11&group=project,metric,day&compare=none&limit=500", &costs)
	if len(costs.Totals) != 1 || costs.Totals[0].Price != want || costs.Totals[0].Currency != "EUR" {
		t.Errorf("total %+v, want %s EUR", costs.Totals, want)
	}
	lines, cursor := map[string]bool{}, ""
	for page := 0; ; page++ {
		var answer struct {
			Lines []struct {
				ID string `json:"line_id"`
			}
			Next *string `json:"next_cursor"`
		}
		s.get(t, "/api/v1/lines?month=2026-11&limit=500"+cursor, &answer)
		for _, l := range answer.Lines {
			if lines[l.ID] {
				t.Fatalf("line %s comes twice", l.ID)
			}
			lines[l.ID] = true
		}
		if answer.Next == nil {
			break
		}
		cursor = "&cursor=" + *answer.Next
	}
	if len(lines) != 20*48*3 {
		t.Errorf("pages hold %d lines, want %d", len(lines), 20*48*3)
	}
	_, header, text := s.ask(t, http.MethodGet, "/api/v1/costs/download?format=csv&month=2026-11", "")
	if rows := bytes.Count(text, []byte("\n")) - 1; rows != 20*48*3 || !strings.HasPrefix(header.Get("Content-Type"), "text/csv") {
		t.Errorf("the CSV holds %d rows, want %d (%s): %.300s", rows, 20*48*3, header.Get("Content-Type"), text)
	}
	_, _, text = s.ask(t, http.MethodGet, "/api/v1/costs/download?format=parquet&month=2026-11&project=project-1", "")
	if !bytes.HasPrefix(text, []byte("PAR1")) || !bytes.HasSuffix(text, []byte("PAR1")) {
		t.Errorf("the Parquet file is none: %.20q", text)
	}

	// Lines that are not those that were committed are shown by nobody.
	if err := e.Conn().Exec(t.Context(), "INSERT INTO rated_lines SELECT * REPLACE ('x' AS resource) FROM rated_lines LIMIT 1"); err != nil {
		t.Fatal(err)
	}
	must(t, append(append(flags, "rate"), "--now", "2026-11-10T05:00:00Z")...) // the day's state is another one
	for _, path := range []string{"/lines?month=2026-11&project=project-0", "/lines?month=2026-11&project=project-1"} {
		status, _, text := s.ask(t, http.MethodGet, "/api/v1"+path, "")
		if status == http.StatusInternalServerError && strings.Contains(string(text), "state_differs") {
			return
		}
	}
	t.Error("a line that was never committed is shown")
}

func TestServeHeadersCompressionAndTags(t *testing.T) {
	flags, _ := database(t)
	s := startServe(t, flags...)
	status, header, body := s.ask(t, http.MethodGet, "/api/v1/metrics", "", "Accept-Encoding", "gzip")
	if status != http.StatusOK || header.Get("Content-Encoding") != "gzip" || !bytes.HasPrefix(body, []byte{0x1f, 0x8b}) {
		t.Errorf("not compressed: %d %v", status, header)
	}
	for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer"} {
		if header.Get(name) != want {
			t.Errorf("%s: %q, want %q", name, header.Get(name), want)
		}
	}
	if policy := header.Get("Content-Security-Policy"); strings.Contains(policy, "unsafe") || !strings.Contains(policy, "default-src 'none'") {
		t.Errorf("Content-Security-Policy: %s", policy)
	}
	if status, _, _ := s.ask(t, http.MethodGet, "/api/v1/metrics", "", "If-None-Match", header.Get("ETag")); status != http.StatusNotModified {
		t.Errorf("with its ETag: %d, want 304", status)
	}
	if status, header, body := s.ask(t, http.MethodGet, "/instances/vm-1.example.org", ""); status != http.StatusOK || !strings.HasPrefix(header.Get("Content-Type"), "text/html") || !bytes.Contains(body, []byte("Ratebatch")) {
		t.Errorf("a page of the application: %d %.200s", status, body)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/api/v1/session", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "billing.example.com:80" // a page of another site that rebinds its name to 127.0.0.1
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusMisdirectedRequest {
		t.Errorf("another host name: %d, want 421", response.StatusCode)
	}
}

func TestServeRefusesToShowCostsToEverybody(t *testing.T) {
	o := enginetest.Options(t)
	bad := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(bad, []byte("grafana sha256:abc\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"every address without tokens": {[]string{"--listen", "0.0.0.0:0"}, "without authentication"},
		"no host is every address":     {[]string{"--listen", ":0"}, "without authentication"},
		"a broken tokens file":         {[]string{"--tokens", bad}, "64 hexadecimal digits"},
		"a proxy that is no address":   {[]string{"--trusted-proxy", "proxy.example"}, "--trusted-proxy"},
		"a proxy that is everybody":    {[]string{"--listen", "0.0.0.0:0", "--trusted-proxy", "0.0.0.0/0"}, "every address"},
		"everybody, in IPv6":           {[]string{"--trusted-proxy", "10.0.0.2,::/0"}, "every address"},
		"a project of no proxy":        {[]string{"--proxy-project-header", "X-Project"}, "without --trusted-proxy"},
		"a user of no proxy":           {[]string{"--proxy-header", "X-User"}, "without --trusted-proxy"},
		"no header of the proxy":       {[]string{"--trusted-proxy", "10.0.0.2", "--proxy-header", ""}, "without --proxy-header"},
		"half a certificate":           {[]string{"--tls-key", bad}, "belong together"},
	} {
		t.Run(name, func(t *testing.T) {
			code, _, stderr := cli(t, append([]string{"--data", o.DataDir, "--database", o.Database, "serve"}, tt.args...)...)
			if code != 2 || !strings.Contains(stderr, tt.want) {
				t.Errorf("exit %d: %s, want 2 and %q", code, stderr, tt.want)
			}
		})
	}
}

// Empty, without tables, unreachable and back again.
func TestServeSaysWhatIsMissing(t *testing.T) {
	o := enginetest.Options(t)
	flags := []string{"--data", o.DataDir, "--database", o.Database}
	must(t, append(flags, "migrate")...)
	s := startServe(t, flags...)
	var health struct{ Status, Message string }
	s.get(t, "/api/v1/health", &health)
	if health.Status != "empty" || !strings.Contains(health.Message, "no usage yet") {
		t.Errorf("health of an empty database: %+v", health)
	}
	for _, path := range []string{"/costs", "/top?by=cpu", "/top?by=price", "/nodes", "/projects", "/rating/status", "/rating/months", "/plans", "/lines", "/search?q=x"} {
		if status, _, body := s.ask(t, http.MethodGet, "/api/v1"+path, ""); status != http.StatusOK {
			t.Errorf("%s of an empty database: %d %s", path, status, body)
		}
	}

	away := httptest.NewUnstartedServer(http.NotFoundHandler())
	url := "http://" + away.Listener.Addr().String()
	away.Close()
	down := startServe(t, "--clickhouse", url)
	for _, path := range []string{"/health", "/costs"} {
		status, header, body := down.ask(t, http.MethodGet, "/api/v1"+path, "")
		if status != http.StatusServiceUnavailable || header.Get("Retry-After") == "" || !strings.Contains(string(body), "ClickHouse does not answer") || strings.Contains(string(body), url) {
			t.Errorf("%s without ClickHouse: %d %s", path, status, body)
		}
	}
}

// A ClickHouse that accepts connections and never answers, as one that idles does
// for a while, holds up neither the start nor a request.
func TestServeWithAClickHouseThatDoesNotAnswerYet(t *testing.T) {
	asleep := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-asleep:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(silent.Close)
	t.Cleanup(func() { close(asleep) })
	s := startServe(t, "--clickhouse", silent.URL, "--query-timeout", "1s")
	for range 2 {
		started := time.Now()
		status, header, body := s.ask(t, http.MethodGet, "/api/v1/costs", "")
		if took := time.Since(started); status != http.StatusServiceUnavailable || header.Get("Retry-After") == "" || !strings.Contains(string(body), "ClickHouse does not answer") || took > 4*time.Second {
			t.Errorf("after %s: %d %s", took, status, body)
		}
	}
	status, _, body := s.ask(t, http.MethodGet, "/api/v1/health", "")
	if status != http.StatusServiceUnavailable || !strings.Contains(string(body), `"unavailable"`) {
		t.Errorf("health: %d %s", status, body)
	}
	if status, _, body := s.ask(t, http.MethodGet, "/costs", ""); status != http.StatusOK || !bytes.Contains(body, []byte("Ratebatch")) {
		t.Errorf("the page that says so does not open: %d %.200s", status, body)
	}
}

func TestServeLimitsRequests(t *testing.T) {
	o := enginetest.Options(t)
	flags := []string{"--data", o.DataDir, "--database", o.Database}
	must(t, append(flags, "migrate")...)
	s := startServe(t, flags...)
	server := web.New(web.Options{Limits: web.Limits{Rate: 1, Burst: 2, Concurrent: 1, Timeout: time.Second}, Now: func() time.Time { return time.Unix(1e9, 0) }})
	var got []int
	for range 3 {
		r := httptest.NewRequest(http.MethodGet, "http://localhost/api/v1/nosuch/x", nil)
		r.URL.Path, r.RequestURI = "/api/v1/costs/download", ""
		r.URL.RawQuery = "nosuch=1"
		w := httptest.NewRecorder()
		server.Handler().ServeHTTP(w, r)
		got = append(got, w.Code)
	}
	if fmt.Sprint(got) != "[400 400 429]" {
		t.Errorf("three requests at a burst of two: %v", got)
	}
	if status, _, _ := s.ask(t, http.MethodGet, "/api/v1/session", ""); status != http.StatusOK {
		t.Errorf("a usual request: %d", status)
	}
}
