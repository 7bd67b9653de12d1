package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

func TestACommandIsATraceWhenACollectorIsNamed(t *testing.T) {
	withoutVariables(t)
	flags, _ := database(t)
	var mu sync.Mutex
	var got struct {
		ResourceSpans []struct {
			ScopeSpans []struct {
				Spans []otlpSpan `json:"spans"`
			} `json:"scopeSpans"`
		} `json:"resourceSpans"`
	}
	status := http.StatusOK
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil || r.URL.Path != "/v1/traces" || r.Header.Get("X-Key") != "k" {
			t.Errorf("%s %v %v", r.URL.Path, r.Header, err)
		}
		w.WriteHeader(status)
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "X-Key=k")
	t.Setenv("TRACEPARENT", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	must(t, append(append(append([]string{}, flags...), "rate"), now...)...)
	mu.Lock()
	spans := got.ResourceSpans[0].ScopeSpans[0].Spans
	root := spans[len(spans)-1]
	if root.Name != "ratebatch rate" || root.TraceID != "0af7651916cd43dd8448eb211c80319c" || root.Parent != "b7ad6b7169203331" {
		t.Errorf("the command's span is %+v", root)
	}
	names := map[string]bool{}
	for _, s := range spans[:len(spans)-1] {
		names[s.Name] = true
		if s.Parent != root.SpanID || s.TraceID != root.TraceID || s.End < s.Start {
			t.Errorf("%+v", s)
		}
	}
	for _, want := range []string{"insert_job_run", "insert_commits", "list_schema_migrations"} {
		if !names[want] {
			t.Errorf("no span %s in %v", want, names)
		}
	}
	status = http.StatusInternalServerError
	mu.Unlock()
	// A collector that does not take them changes no exit code.
	if code, _, stderr := cli(t, append(append(append([]string{}, flags...), "status"), now...)...); code != 0 || !strings.Contains(stderr, "500") {
		t.Errorf("exit %d %s", code, stderr)
	}
}
