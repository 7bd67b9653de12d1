package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"go.opentelemetry.io/otel/trace"

	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// Traces go to an OpenTelemetry collector when OTEL_EXPORTER_OTLP_ENDPOINT (or
// …_TRACES_ENDPOINT) names one: a span for the command, and one for each statement
// by its name, whose context ClickHouse takes up (system.opentelemetry_span_log).
// OTLP/HTTP with JSON is a page of code; the SDK and its exporter would bring gRPC
// into the program.

// maxSpans bounds what a long run keeps; the ones that follow are counted.
const maxSpans = 2000

// tracer collects the spans of one command.
type tracer struct {
	endpoint string
	headers  map[string]string
	now      func() time.Time

	root, parent trace.SpanID
	id           trace.TraceID

	mu    sync.Mutex
	spans []otlpSpan
	left  int // not kept
}

type otlpSpan struct {
	TraceID    string      `json:"traceId"`
	SpanID     string      `json:"spanId"`
	Parent     string      `json:"parentSpanId,omitempty"`
	Name       string      `json:"name"`
	Kind       int         `json:"kind"` // 1 internal, 3 client
	Start      string      `json:"startTimeUnixNano"`
	End        string      `json:"endTimeUnixNano"`
	Attributes []attribute `json:"attributes,omitempty"`
	Status     struct {
		Code int `json:"code,omitempty"` // 2: error
	} `json:"status"`
}

type attribute struct {
	Key   string            `json:"key"`
	Value map[string]string `json:"value"`
}

func text(key, value string) attribute {
	return attribute{key, map[string]string{"stringValue": value}}
}

var traceParent = regexp.MustCompile(`^00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}$`)

// newTracer reads the variables of OpenTelemetry's specification; nil: no traces.
func newTracer(now func() time.Time) *tracer {
	endpoint := os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	if base := os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"); endpoint == "" && base != "" {
		endpoint = strings.TrimSuffix(base, "/") + "/v1/traces"
	}
	if endpoint == "" || os.Getenv("OTEL_SDK_DISABLED") == "true" {
		return nil
	}
	t := &tracer{endpoint: endpoint, now: now, headers: map[string]string{}}
	for pair := range strings.SplitSeq(os.Getenv("OTEL_EXPORTER_OTLP_HEADERS"), ",") {
		if name, value, ok := strings.Cut(pair, "="); ok {
			t.headers[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
	_, _ = rand.Read(t.id[:]) // it never fails
	t.root = newSpanID()
	// Whoever started us, such as a CI job, may have a trace already.
	if m := traceParent.FindStringSubmatch(os.Getenv("TRACEPARENT")); m != nil {
		_, _ = hex.Decode(t.id[:], []byte(m[1]))
		_, _ = hex.Decode(t.parent[:], []byte(m[2]))
	}
	return t
}

func newSpanID() (id trace.SpanID) {
	for !id.IsValid() {
		_, _ = rand.Read(id[:])
	}
	return id
}

func (t *tracer) add(id, parent trace.SpanID, name string, kind int, start time.Time, failed bool, attributes ...attribute) {
	s := otlpSpan{TraceID: t.id.String(), SpanID: id.String(), Name: name, Kind: kind, Start: nanos(start), End: nanos(t.now()), Attributes: attributes}
	if parent.IsValid() {
		s.Parent = parent.String()
	}
	if failed {
		s.Status.Code = 2
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.spans) >= maxSpans && id != t.root {
		t.left++
		return
	}
	t.spans = append(t.spans, s)
}

func nanos(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

// end adds the command's span and sends all of them. No span holds arguments,
// parameters or a message of an error: they may hold what is secret.
func (t *tracer) end(ctx context.Context, command string, begin time.Time, code int) error {
	if t == nil {
		return nil
	}
	t.add(t.root, t.parent, command, 1, begin, code != 0, text("ratebatch.exit_code", strconv.Itoa(code)), text("ratebatch.spans_left_out", strconv.Itoa(t.left)))
	service := os.Getenv("OTEL_SERVICE_NAME")
	if service == "" {
		service = "ratebatch"
	}
	body, err := json.Marshal(map[string]any{"resourceSpans": []any{map[string]any{
		"resource":   map[string]any{"attributes": []attribute{text("service.name", service), text("service.version", version)}},
		"scopeSpans": []any{map[string]any{"scope": map[string]string{"name": "ratebatch"}, "spans": t.spans}},
	}}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, t.endpoint, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	for name, value := range t.headers {
		request.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("send traces: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("send traces to %s: %s", request.URL.Redacted(), response.Status)
	}
	return nil
}

// traced is a connection whose statements are spans.
type traced struct {
	driver.Conn
	t *tracer
}

// trace wraps a connection if traces are configured.
func (t *tracer) trace(conn driver.Conn) driver.Conn {
	if t == nil {
		return conn
	}
	return &traced{conn, t}
}

var (
	statementName = regexp.MustCompile(`(?m)^-- name:\s*(\S+)`)
	firstWords    = regexp.MustCompile(`^\s*(\w+(?:\s+\w+)?)`)
)

// span begins a statement's span; the returned context carries it to the server.
func (c *traced) span(ctx context.Context, query string) (context.Context, func(error)) {
	name := "statement"
	if m := statementName.FindStringSubmatch(query); m != nil {
		name = m[1]
	} else if m := firstWords.FindStringSubmatch(query); m != nil {
		name = m[1]
	}
	id, start := newSpanID(), c.t.now()
	ctx = clickhouse.Context(ctx, clickhouse.WithSpan(trace.NewSpanContext(trace.SpanContextConfig{TraceID: c.t.id, SpanID: id, TraceFlags: trace.FlagsSampled, Remote: true})))
	return ctx, func(err error) {
		c.t.add(id, c.t.root, name, 3, start, err != nil, text("db.system.name", "clickhouse"))
	}
}

// Exec implements driver.Conn.
func (c *traced) Exec(ctx context.Context, query string, args ...any) error {
	ctx, end := c.span(ctx, query)
	err := c.Conn.Exec(ctx, query, args...)
	end(err)
	return err
}

// Query implements driver.Conn; the span ends when the first block is there.
func (c *traced) Query(ctx context.Context, query string, args ...any) (driver.Rows, error) {
	ctx, end := c.span(ctx, query)
	rows, err := c.Conn.Query(ctx, query, args...)
	end(err)
	return rows, err
}

// openStore is the store over a connection, with traces where they are configured.
func (p *program) openStore(conn driver.Conn, database string) *store.Store {
	return store.New(p.tracer.trace(conn), database)
}
