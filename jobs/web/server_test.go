package web

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// newTestServer serves an application of three files and a ClickHouse that
// cannot be opened for this reason.
func newTestServer(open func(context.Context) (*store.Store, error)) *Server {
	return New(Options{
		Open: open, Now: func() time.Time { return time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC) }, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		App: fstest.MapFS{"index.html": {Data: []byte("<title>Ratebatch</title>")}, "favicon.svg": {Data: []byte("<svg/>")}, "assets/index-abc.js": {Data: []byte("1")}},
	})
}

// A page's path may hold any name, points included; only what can be nothing but
// a file is missing.
func TestPagesWithPointsInTheirPathsOpen(t *testing.T) {
	handler := newTestServer(nil).Handler()
	for path, want := range map[string]string{
		"/":                                  "text/html",
		"/costs":                             "text/html",
		"/instances/vm-1.example.org":        "text/html",
		"/instances/a.js":                    "text/html",
		"/nodes/RegionOne/compute-1.example": "text/html",
		"/costs/lines/x.y?project=p":         "text/html",
		"/plan/v1.2/changes":                 "text/html",
		"/favicon.svg":                       "image/svg+xml",
		"/assets/index-abc.js":               "text/javascript",
		"/assets/index-old.js":               "404",
		"/assets/gone":                       "404",
		"/robots.txt":                        "404",
		"/index.php":                         "404",
		"/.env":                              "404",
	} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost"+path, nil))
		if want == "404" {
			if w.Code != http.StatusNotFound {
				t.Errorf("%s: %d, want 404", path, w.Code)
			}
			continue
		}
		if got := w.Header().Get("Content-Type"); w.Code != http.StatusOK || !strings.HasPrefix(got, want) {
			t.Errorf("%s: %d %s, want %s", path, w.Code, got, want)
		}
	}
}

// Empty, idle and usual are told apart by the newest sample, just on and just
// behind the edge.
func TestHealthSaysWhatThereIsToSee(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		newest time.Time
		usage  bool
		status string
		says   string
	}{
		"nothing at all":                     {time.Unix(0, 0), false, "empty", "ratebatch ingest"},
		"usage whose samples have expired":   {time.Unix(0, 0), true, "idle", "no samples are known"},
		"a sample of just now":               {now, true, "ok", "coming in"},
		"a sample a quarter of an hour old":  {now.Add(-silentAfter), true, "ok", "coming in"},
		"a sample a second older":            {now.Add(-silentAfter - time.Second), true, "idle", "2026-11-30T11:44:59Z: nothing has come in since"},
		"samples, and no tier yet":           {now.Add(-time.Minute), false, "ok", "coming in"},
		"old samples that never got a tier":  {now.Add(-time.Hour), false, "idle", "2026-11-30T11:00:00Z"},
		"a sample of a clock that runs fast": {now.Add(time.Minute), true, "ok", "coming in"},
	} {
		if got := describeHealth(tt.newest, tt.usage, now); got.Status != tt.status || !strings.Contains(got.Message, tt.says) {
			t.Errorf("%s: %+v, want %s with %q", name, got, tt.status, tt.says)
		}
	}
}

// A ClickHouse that accepts a connection and never answers holds a request no
// longer than it may take, and the next one neither.
func TestAClickHouseThatNeverAnswersEndsInAClearMessage(t *testing.T) {
	s := newTestServer(func(ctx context.Context) (*store.Store, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	})
	s.Limits.Timeout = 100 * time.Millisecond
	for range 2 {
		w := httptest.NewRecorder()
		started := time.Now()
		s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost/api/v1/costs", nil))
		if took := time.Since(started); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "ClickHouse") || took > 5*time.Second {
			t.Errorf("%d after %s: %s", w.Code, took, w.Body)
		}
	}
}

// What ClickHouse says of an error is for the log: answers name neither
// statements nor addresses.
func TestErrorsNameNeitherStatementsNorAddresses(t *testing.T) {
	s := newTestServer(func(context.Context) (*store.Store, error) {
		return nil, errors.New("dial tcp 10.1.2.3:9000: SELECT secret FROM rated_lines")
	})
	for _, path := range []string{"/api/v1/costs", "/api/v1/health", "/api/v1/costs/download?format=csv"} {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost"+path, nil))
		if w.Code != http.StatusServiceUnavailable || strings.Contains(w.Body.String(), "10.1.2.3") || strings.Contains(w.Body.String(), "SELECT") || w.Header().Get("Retry-After") == "" {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

// Downloads last as long as a client takes to read them; pages do not wait for
// them, and one too many is told so.
func TestDownloadsHaveSlotsOfTheirOwn(t *testing.T) {
	opened, release := make(chan struct{}, 1), make(chan struct{})
	server := New(Options{
		Open: func(context.Context) (*store.Store, error) {
			opened <- struct{}{}
			<-release
			return nil, errors.New("not today")
		},
		Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Limits: Limits{Rate: 1000, Burst: 1000, Concurrent: 1, Downloads: 1, Timeout: 100 * time.Millisecond, Download: time.Minute},
	})
	ask := func(path string) (int, string) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		w := httptest.NewRecorder()
		server.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost/api/v1"+path, nil).WithContext(ctx))
		return w.Code, w.Body.String()
	}
	done := make(chan int)
	go func() {
		status, _ := ask("/costs/download?format=csv")
		done <- status
	}()
	<-opened
	if status, body := ask("/session?nosuch=1"); status != http.StatusBadRequest {
		t.Errorf("a page while a download runs: %d %s, want 400", status, body)
	}
	if status, body := ask("/costs/download?format=csv"); status != http.StatusServiceUnavailable || !strings.Contains(body, "as many requests as the server answers at a time") {
		t.Errorf("a second download: %d %s, want 503", status, body)
	}
	close(release)
	if status := <-done; status != http.StatusServiceUnavailable {
		t.Errorf("the download, without a ClickHouse: %d, want 503", status)
	}
}
