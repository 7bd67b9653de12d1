package main

import (
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

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ratebatch/ratebatch/ratebatch/store"
)

func TestJobsWriteTheirMetrics(t *testing.T) {
	withoutVariables(t)
	flags, e := database(t)
	dir := t.TempDir()
	var mu sync.Mutex
	pushed := map[string]string{}
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		pushed[r.Method+" "+r.URL.Path] = string(body)
	}))
	defer gateway.Close()
	flags = append(flags, "--metrics-dir", dir, "--metrics-push", gateway.URL)
	read := func(name string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if code, _, stderr := cli(t, append(append(append([]string{}, flags...), "rate"), now...)...); code != 0 || strings.Contains(stderr, "metrics") {
		t.Errorf("exit %d %s", code, stderr)
	}
	command, state := read("ratebatch-rate.prom"), read("ratebatch.prom")
	for _, want := range []string{
		`ratebatch_command_last_exit_code{command="rate"} 0`, `ratebatch_command_last_success_timestamp_seconds{command="rate"}`,
		`ratebatch_job_last_failed{name="rate"} 0`, `ratebatch_job_last_count{name="rate",what="lines"} `, `ratebatch_job_last_count{name="rate",what="rejected"} 0`,
		`ratebatch_job_last_success_timestamp_seconds{name="rate"}`, "ratebatch_scopes 2", `ratebatch_rated_lag_seconds{share="1"}`, `ratebatch_rated_price{currency="EUR"}`,
		"ratebatch_rated_unpriced_rows ", "ratebatch_rated_rejected_rows 0", `ratebatch_watermark_lag_seconds{region="one"}`, `ratebatch_late_periods{kind="lost"} 0`,
	} {
		if !strings.Contains(command+state, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	mu.Lock()
	if pushed["POST /metrics/job/ratebatch/source/rate"] == "" || pushed["PUT /metrics/job/ratebatch"] == "" {
		t.Errorf("pushed: %v", slices.Collect(mapKeys(pushed)))
	}
	mu.Unlock()

	// A job that fails leaves when it last went well.
	success := regexp.MustCompile(`last_success_timestamp_seconds\{command="rate"\} (\S+)`)
	before := success.FindString(command)
	if err := e.Conn().Exec(t.Context(), "TRUNCATE TABLE rate_plans"); err != nil {
		t.Fatal(err)
	}
	if err := e.Conn().Exec(t.Context(), "TRUNCATE TABLE period_commits"); err != nil {
		t.Fatal(err)
	}
	code, _, _ := cli(t, append(append(append([]string{}, flags...), "rate"), now...)...)
	command = read("ratebatch-rate.prom")
	if code == 0 || strings.Contains(command, "exit_code{command=\"rate\"} 0\n") || success.FindString(command) != before || before == "" {
		t.Errorf("after exit %d: %s", code, command)
	}
	// The server is away: the command's own metrics are written all the same.
	if code, _, _ := cli(t, "--clickhouse", "http://127.0.0.1:1", "--metrics-dir", dir, "rate"); code != 75 || !strings.Contains(read("ratebatch-rate.prom"), `exit_code{command="rate"} 75`) {
		t.Errorf("exit %d: %s", code, read("ratebatch-rate.prom"))
	}
	// A folder that is none is said, and changes no exit code.
	code, _, stderr := cli(t, append(append([]string{}, flags[:4]...), "--metrics-dir", "/nowhere", "retention")...)
	if code != 0 || !strings.Contains(stderr, "/nowhere") {
		t.Errorf("exit %d %s", code, stderr)
	}
}

// The metrics have good names and help, and the alerts and the dashboard use none
// that does not exist.
func TestMetricNames(t *testing.T) {
	registry := prometheus.NewRegistry()
	g := commandMetrics("rate", time.Unix(0, 0), time.Unix(1, 0), 0, 0)
	g.scopes([]store.ScopeStatus{{Scope: "a", Currency: "EUR"}, {Scope: "b", Currency: "EUR"}}, nil, time.Unix(1, 0))
	registry.MustRegister(g)
	problems, err := testutil.GatherAndLint(registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
	var source strings.Builder
	for _, file := range []string{"telemetry.go", "../../../schedules/health.go", "../../../agent/metrics.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		source.Write(text)
	}
	for _, file := range []string{"../../../deploy/prometheus/ratebatch.rules.yaml", "../../../deploy/grafana/ratebatch.json"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		names := regexp.MustCompile(`ratebatch_(schedule_|agent_)?([a-z_]+)`).FindAllStringSubmatch(string(text), -1)
		if len(names) < 5 {
			t.Errorf("%s uses %d metrics", file, len(names))
		}
		for _, name := range names {
			if !strings.Contains(source.String(), `"`+name[2]+`"`) {
				t.Errorf("%s uses %s, which nothing writes", file, name[0])
			}
		}
	}
}
