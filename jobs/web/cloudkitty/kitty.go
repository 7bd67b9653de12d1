// Package cloudkitty answers CloudKitty's HTTP API from what Ratebatch rated, so
// that Horizon's panels and the command-line client go on working.
//
// It reads what is rated; of what writes there is: reset a scope, enable and
// disable one, and reprocess. Rules belong to the rate plan, so the hashmap
// paths are a read-only view of the plan in force and answer 405 to writes.
//
// Where CloudKitty's own servers differ from one another or trip their client,
// this one is lenient: both names of the time of a reset, both paths of
// reprocesses, no redirect after an update (the client repeats it 31 times).
// Two of its bugs are not copied: all_tenants without a right to it, and
// booleans that are true whatever they say.
//
// Numbers are exact decimals, written as JSON numbers where CloudKitty has
// floats: every client reads them as before, and none gets a binary tail.
package cloudkitty

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ratebatch/ratebatch/jobs/web"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// Options of the API.
type Options struct {
	Web    *web.Server
	Now    func() time.Time
	Log    *slog.Logger
	Auth   web.Auth // ours; used when Keystone is nil
	NoAuth bool     // loopback only
	// Keystone validates a token; nil: it is not asked.
	Keystone func(ctx context.Context, token string) (web.Identity, error)
	AuthURI  string // that a 401 names

	// Reset forgets what was rated from a time on; no scopes: all.
	Reset func(ctx context.Context, s *store.Store, scopes []string, to time.Time, author string) error
	// Reprocess schedules periods to be rated again; no scopes: all.
	Reprocess func(ctx context.Context, s *store.Store, scopes []string, from, to time.Time, reason, author string) error
}

// ErrToken says that Keystone does not know a token.
var ErrToken = errors.New("the token is not valid")

// Server answers CloudKitty's API.
type Server struct{ Options }

// New makes a server.
func New(o Options) *Server { return &Server{o} }

// failure is an answer that is no success.
type failure struct {
	status  int
	message string
}

func (f *failure) Error() string { return f.message }

func bad(format string, args ...any) error {
	return &failure{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

func missing(format string, args ...any) error {
	return &failure{http.StatusNotFound, fmt.Sprintf(format, args...)}
}

// readOnly refuses writes of what the plan says.
var readOnly = &failure{http.StatusMethodNotAllowed, "prices are the rate plan's: change its file and use 'ratebatch plan apply'"}

// request is one call.
type request struct {
	*http.Request
	id    web.Identity
	store *store.Store
	now   time.Time
	query map[string][]string
	v1    bool
}

// answer is a status and what becomes JSON; nil: no body.
type answer struct {
	status int
	value  any
}

func ok(value any) (answer, error) { return answer{http.StatusOK, value}, nil }

// maxBody bounds what a client sends.
const maxBody = 1 << 20

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	path := r.URL.Path
	if path == "/healthcheck" {
		h.Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, "OK") // nobody is left to tell
		return
	}
	raw := make([]byte, 16)
	if _, err := rand.Read(raw); err == nil {
		h.Set("x-openstack-request-id", "req-"+hex.EncodeToString(raw))
	}
	if path == "/" {
		write(w, http.StatusOK, s.versions(r))
		return
	}
	q := &request{Request: r, now: s.Now().UTC(), query: r.URL.Query(), v1: strings.HasPrefix(path, "/v1/")}
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Minute)
	defer cancel()
	got, err := s.serve(ctx, q)
	if err != nil {
		s.fail(ctx, w, q, err)
		return
	}
	write(w, got.status, got.value)
}

func (s *Server) serve(ctx context.Context, q *request) (answer, error) {
	if s.NoAuth && !web.IsLoopbackHost(q.Host) {
		return answer{}, &failure{http.StatusMisdirectedRequest, "without authentication this server answers to localhost only"}
	}
	if s.NoAuth && q.Method != http.MethodGet && q.Method != http.MethodHead && !ownOrigin(q.Header.Get("Origin")) {
		return answer{}, &failure{http.StatusForbidden, "without authentication nothing is changed for a page of another origin"}
	}
	id, err := s.identify(ctx, q.Request)
	if err != nil {
		return answer{}, err
	}
	q.id = id
	if q.store, err = s.Web.Store(ctx); err != nil {
		return answer{}, err
	}
	q.Body = http.MaxBytesReader(nil, q.Body, maxBody)
	path := q.URL.Path
	switch {
	case strings.HasPrefix(path, "/v2/"):
		return s.v2(ctx, q, strings.TrimPrefix(path, "/v2/"))
	case strings.HasPrefix(path, "/v1/"):
		return s.v1(ctx, q, strings.Trim(strings.TrimPrefix(path, "/v1/"), "/"))
	}
	return answer{}, missing("There is nothing at this address.")
}

// ownOrigin says whether a request comes from no web page, or from one of this
// machine. Browsers send any page's POST here, and name the page's origin with it.
func ownOrigin(origin string) bool {
	if origin == "" {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && web.IsLoopbackHost(u.Host)
}

var errUnauthorized = errors.New("unauthorized")

func (s *Server) identify(ctx context.Context, r *http.Request) (web.Identity, error) {
	if s.NoAuth {
		return web.Identity{Kind: "none", Name: "cloudkitty-noauth"}, nil
	}
	if s.Keystone != nil {
		token := r.Header.Get("X-Auth-Token")
		if token == "" {
			return web.Identity{}, errUnauthorized
		}
		id, err := s.Keystone(ctx, token)
		if errors.Is(err, ErrToken) {
			return id, errUnauthorized
		}
		if err != nil {
			s.Log.ErrorContext(ctx, "token was not validated", "error", err.Error()) // it names no token
			return id, &failure{http.StatusServiceUnavailable, "Keystone could not be asked; try again"}
		}
		return id, nil
	}
	id, known := s.Auth.Identify(r)
	if !known || id.Kind == "none" {
		return id, errUnauthorized
	}
	return id, nil
}

func (s *Server) fail(ctx context.Context, w http.ResponseWriter, q *request, err error) {
	if errors.Is(err, errUnauthorized) {
		w.Header().Set("WWW-Authenticate", fmt.Sprintf("Keystone uri=%q", s.AuthURI))
		write(w, http.StatusUnauthorized, map[string]any{"error": map[string]any{"code": 401, "title": "Unauthorized", "message": "The request you have made requires authentication."}})
		return
	}
	var f *failure
	status, message := 0, ""
	var config *ratebatch.ConfigError
	var halt *ratebatch.HaltError
	switch {
	case errors.As(err, &f):
		status, message = f.status, f.message
	case errors.Is(err, ratebatch.ErrLeaseHeld):
		status, message = http.StatusConflict, "A run is rating at this moment; try again when it has ended."
	case q.Method != http.MethodGet && errors.As(err, &config): // what is asked for cannot be done
		status, message = http.StatusBadRequest, config.Error()
	case q.Method != http.MethodGet && errors.As(err, &halt):
		status, message = http.StatusBadRequest, halt.Error()
	default:
		status, message = web.PublicError(ctx, err, q.id)
		s.Log.ErrorContext(ctx, "request failed", "request_id", w.Header().Get("x-openstack-request-id"), "path", q.URL.Path, "status", status, "error", err.Error())
	}
	if status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", "GET")
	}
	if q.v1 {
		code := "Client"
		if status >= 500 {
			code = "Server"
		}
		write(w, status, map[string]any{"faultcode": code, "faultstring": message, "debuginfo": nil})
		return
	}
	write(w, status, map[string]any{"message": message})
}

func write(w http.ResponseWriter, status int, value any) {
	if value == nil {
		w.WriteHeader(status)
		return
	}
	body, err := json.Marshal(value)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // nobody is left to tell
}

func (s *Server) versions(r *http.Request) any {
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	version := func(id, status string) map[string]any {
		return map[string]any{"id": id, "status": status, "links": []any{map[string]any{"href": scheme + "://" + r.Host + "/" + id, "rel": "self"}}}
	}
	return map[string]any{"versions": []any{version("v1", "CURRENT"), version("v2", "EXPERIMENTAL")}}
}

// known refuses parameters that CloudKitty does not know, and in v2 single ones
// that come twice.
func (q *request) known(single []string, lists ...string) error {
	for name, values := range q.query {
		switch {
		case slices.Contains(lists, name):
		case !slices.Contains(single, name):
			return bad("Unknown parameter: %.64s", name)
		case len(values) > 1 && !q.v1:
			return bad("Parameter %s was given twice", name)
		}
	}
	return nil
}

// get is a parameter; of several in v1 the last.
func (q *request) get(name string) string {
	values := q.query[name]
	if len(values) == 0 {
		return ""
	}
	return values[len(values)-1]
}

// list is a parameter that may be repeated and hold commas.
func (q *request) list(name string) []string {
	var out []string
	for _, value := range q.query[name] {
		for part := range strings.SplitSeq(value, ",") {
			if part != "" {
				out = append(out, part)
			}
		}
	}
	return out
}

func (q *request) page() (limit, offset int, err error) {
	number := func(name string, fallback, least int) int {
		text := q.get(name)
		if text == "" {
			return fallback
		}
		n, parsed := strconv.Atoi(text)
		if parsed != nil || n < least || n > 1_000_000_000 {
			err = bad("%s: %.64s is no number from %d on", name, text, least)
		}
		return n
	}
	limit, offset = number("limit", 100, 1), number("offset", 0, 0)
	return limit, offset, err
}

// layouts are the ways to write a moment that CloudKitty's clients use.
var layouts = []string{"2006-01-02T15:04:05Z07:00", "2006-01-02T15:04:05.999999999Z07:00", "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02T15Z07:00", "2006-01-02", "2006-01", "20060102T150405Z07:00", "20060102T150405", "20060102"}

func parseTime(name, text string) (time.Time, error) {
	clean := strings.Replace(strings.TrimSpace(text), " ", "T", 1)
	clean = strings.Replace(clean, "TZ", "Z", 1)
	for _, layout := range layouts {
		if t, err := time.Parse(layout, clean); err == nil && t.Year() > 1969 && t.Year() < 2106 {
			return t.UTC().Truncate(time.Second), nil
		}
	}
	return time.Time{}, bad("%s: %.64q is no time; write it as 2026-10-01T00:00:00+00:00", name, text)
}

// window is begin and end, the current month without them.
func (q *request) window(ctx context.Context) (from, to time.Time, err error) {
	month, _, err := web.Month(ctx, q.store, q.now)
	if err != nil {
		return from, to, err
	}
	from, to = month.From, month.To
	if text := q.get("begin"); text != "" {
		if from, err = parseTime("begin", text); err != nil {
			return from, to, err
		}
	}
	if text := q.get("end"); text != "" {
		if to, err = parseTime("end", text); err != nil {
			return from, to, err
		}
	}
	if to.Before(from) {
		to = from // an empty answer, as CloudKitty gives
	}
	return from, to, nil
}

func (q *request) admin() error {
	if q.id.Project == "" {
		return nil
	}
	if q.v1 {
		return &failure{http.StatusForbidden, "Policy doesn't allow this to be performed."}
	}
	return &failure{http.StatusForbidden, "You are not authorized to perform this action"}
}

// body reads a JSON object and refuses unknown keys.
func (q *request) body(into any, keys ...string) error {
	data, err := io.ReadAll(q.Body)
	if err != nil {
		return &failure{http.StatusRequestEntityTooLarge, "The body is too long."}
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(data, &object); err != nil {
		return bad("The body is no JSON object.")
	}
	for key := range object {
		if !slices.Contains(keys, key) {
			return bad("Unknown key: %.64s", key)
		}
	}
	if err := json.Unmarshal(data, into); err != nil {
		return bad("The body's values have other types than expected.")
	}
	return nil
}

// iso writes a moment as v2 has it, naive one as v1.
func iso(t time.Time) string   { return t.UTC().Format("2006-01-02T15:04:05+00:00") }
func naive(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05") }
