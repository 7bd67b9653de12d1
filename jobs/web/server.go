package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// Limits of one server.
type Limits struct {
	Rate       float64       // requests a second and client
	Burst      int           // requests a client may send at once
	Concurrent int           // requests that are answered at a time
	Downloads  int           // downloads at a time, beside these
	Timeout    time.Duration // of one answer
	Download   time.Duration // of one download
}

// DefaultLimits suit a few hundred people who look at pages, each of which asks
// for up to a dozen answers.
var DefaultLimits = Limits{Rate: 20, Burst: 100, Concurrent: 16, Downloads: 4, Timeout: 30 * time.Second, Download: 30 * time.Minute}

// Options are what a Server works with.
type Options struct {
	// Open gives the store; it fails as long as ClickHouse cannot be reached.
	Open    func(context.Context) (*store.Store, error)
	Now     func() time.Time
	Log     *slog.Logger
	Version string
	App     fs.FS // the web application, index.html at its root; nil: none
	Auth    Auth
	Limits  Limits
	TLS     bool // whether it is spoken, here or by the proxy in front

	// Status says what `ratebatch status --late` says.
	Status func(context.Context, *store.Store) (any, error)
	// Explain says what `ratebatch explain` says of one line.
	Explain func(context.Context, *store.Store, LineRef) (any, error)
}

// Server answers the API.
type Server struct {
	Options
	costs    *costCache
	limiter  *limiter
	slots    chan struct{} // of answers
	files    chan struct{} // of downloads, which last as long as a client takes to read
	mux      *http.ServeMux
	months   monthCache
	statuses kept[any]
	top24    kept[topPrices]
	used24   map[string]*kept[topUsed] // by what is used

	mu        sync.Mutex
	checked   *store.Store // whose schema was found good
	checkedAt time.Time
}

// New makes a server.
func New(o Options) *Server {
	if o.Limits == (Limits{}) {
		o.Limits = DefaultLimits
	}
	s := &Server{Options: o, limiter: newLimiter(o.Limits), slots: make(chan struct{}, o.Limits.Concurrent), files: make(chan struct{}, max(1, o.Limits.Downloads)), mux: http.NewServeMux()}
	s.costs = newCostCache()
	s.used24 = map[string]*kept[topUsed]{"cpu": {}, "memory": {}, "network": {}, "disk": {}}
	s.routes()
	return s
}

// route is one endpoint. Its answer is a value that becomes JSON.
type route func(context.Context, *call) (any, error)

const prefix = "/api/v1"

func (s *Server) routes() {
	page := []string{"limit", "offset"}
	window := []string{"month", "begin", "end"}
	for _, r := range []struct {
		pattern string
		params  []string
		answer  route
	}{
		{"GET /session", nil, s.session},
		{"GET /search", []string{"q", "limit"}, s.search},
		{"GET /projects", page, s.projects},
		{"GET /instances/{instance}", nil, s.instance},
		{"GET /instances/{instance}/series", []string{"range", "end"}, s.instanceSeries},
		{"GET /instances/{instance}/costs", []string{"range", "end", "month"}, s.instanceCosts},
		{"GET /nodes", page, s.nodes},
		{"GET /nodes/{region}/{host}/series", []string{"range", "end"}, s.nodeSeries},
		{"GET /nodes/{region}/{host}/instances", append([]string{"range", "end", "order"}, page...), s.nodeInstances},
		{"GET /top", []string{"by", "limit", "end"}, s.top},
		{"GET /costs", append(append([]string{"group", "project", "metric", "compare", "order", "months"}, window...), page...), s.costTable},
		{"GET /lines", append([]string{"day", "project", "metric", "instance", "resource", "bucket", "limit", "cursor"}, window...), s.lines},
		{"GET /lines/{line_id}/explain", []string{"project", "begin"}, s.explain},
		{"GET /rating/status", nil, s.status},
		{"GET /rating/runs", append([]string{"job", "state"}, page...), s.runs},
		{"GET /rating/late", append([]string{"project"}, page...), s.late},
		{"GET /rating/unpriced", append([]string{"month", "project"}, page...), s.unpriced},
		{"GET /rating/schedules", page, s.schedules},
		{"GET /rating/exports", page, s.exports},
		{"GET /rating/months", nil, s.monthList},
		{"GET /plans", nil, s.plans},
		{"GET /plans/{version}", nil, s.plan},
		{"GET /plans/{version}/diff/{to}", nil, s.planDiff},
		{"GET /metrics", nil, s.metrics},
		{"POST /quote", nil, s.quote},
	} {
		method, path, _ := strings.Cut(r.pattern, " ")
		s.mux.Handle(method+" "+prefix+path, s.api(r.params, r.answer))
	}
	s.mux.HandleFunc("GET "+prefix+"/health", s.health)
	s.mux.Handle("GET "+prefix+"/costs/download", s.guarded(s.files, http.HandlerFunc(s.download)))
	s.mux.HandleFunc(prefix+"/", func(w http.ResponseWriter, r *http.Request) {
		// The mux sends another method here as well.
		probe := r.Clone(r.Context())
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			probe.Method = method
			if _, pattern := s.mux.Handler(probe); pattern != prefix+"/" && pattern != "" && method != r.Method {
				w.Header().Set("Allow", method)
				s.fail(w, r, &apiError{status: http.StatusMethodNotAllowed, code: "method_not_allowed", message: "this address takes " + method + " only"})
				return
			}
		}
		s.fail(w, r, notFound("there is no such address in the API"))
	})
	s.mux.HandleFunc("/", s.app)
}

// Handler is the whole server.
func (s *Server) Handler() http.Handler {
	return s.recovering(s.secured(s.mux))
}

// guarded lets only those through who may ask, and not too often; as many at a
// time as there are slots.
func (s *Server) guarded(slots chan struct{}, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, ok := s.Auth.Identify(r)
		client := clientOf(r)
		if ok && id.Kind != "none" {
			client = id.Kind + " " + id.Name
		}
		// Before the refusal: guessing tokens is what the limit slows down too.
		if wait := s.limiter.take(client, s.Now()); wait > 0 {
			w.Header().Set("Retry-After", seconds(wait))
			s.fail(w, r, &apiError{status: http.StatusTooManyRequests, code: "rate_limited", message: "too many requests", hint: "try again in " + seconds(wait) + " s"})
			return
		}
		if !ok {
			w.Header().Set("WWW-Authenticate", `Bearer realm="ratebatch"`)
			s.fail(w, r, &apiError{status: http.StatusUnauthorized, code: "unauthorized", message: "this needs a token", hint: "send Authorization: Bearer TOKEN"})
			return
		}
		wait := time.NewTimer(s.Limits.Timeout)
		defer wait.Stop()
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-wait.C:
			s.fail(w, r, &apiError{status: http.StatusServiceUnavailable, code: "unavailable", message: "as many requests as the server answers at a time are running", hint: "ask again later"})
			return
		case <-r.Context().Done():
			return
		}
		if slots == s.slots {
			readWithin(w, s.Limits.Timeout)
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), identityKey{}, id)))
	})
}

// readWithin bounds how long a client may take to read an answer that is made
// within a time: one that does not read must not keep a slot of the others.
func readWithin(w http.ResponseWriter, made time.Duration) {
	// Only a test's writer has no deadlines, and it waits for nobody.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(made + 2*time.Minute)) //nolint:forbidigo // sockets go by the machine's clock
}

// answerWithin bounds how long a handler of Limit may take for an answer.
const answerWithin = 2 * time.Minute

// Limit bounds how often each client may ask another handler, and how many
// requests it answers at a time; panics end one request.
func (s *Server) Limit(next http.Handler) http.Handler {
	return s.recovering(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if wait := s.limiter.take("cloudkitty "+clientOf(r), s.Now()); wait > 0 {
			w.Header().Set("Retry-After", seconds(wait))
			http.Error(w, "too many requests", http.StatusTooManyRequests)
			return
		}
		select {
		case s.slots <- struct{}{}:
			defer func() { <-s.slots }()
		case <-r.Context().Done():
			return
		}
		readWithin(w, answerWithin)
		next.ServeHTTP(w, r)
	}))
}

type identityKey struct{}

// IdentityOf is who sends a request that passed the guard.
func IdentityOf(r *http.Request) Identity {
	id, _ := r.Context().Value(identityKey{}).(Identity)
	return id
}

// api answers one endpoint with JSON.
func (s *Server) api(params []string, answer route) http.Handler {
	return s.guarded(s.slots, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), s.Limits.Timeout)
		defer cancel()
		c := &call{Request: r, id: IdentityOf(r), now: s.Now().UTC()}
		err := c.check(params)
		if err == nil {
			c.store, err = s.ready(ctx)
		}
		var value any
		if err == nil {
			value, err = answer(ctx, c)
		}
		if err != nil {
			s.fail(w, r, asAPIError(ctx, err).to(c.id))
			return
		}
		body, err := encode(value)
		if err != nil {
			s.fail(w, r, asAPIError(ctx, err))
			return
		}
		s.send(w, r, http.StatusOK, body)
	}))
}

func encode(value any) ([]byte, error) {
	var buf bytes.Buffer
	encoder := json.NewEncoder(&buf)
	encoder.SetEscapeHTML(true) // an answer that is opened as a page stays text
	err := encoder.Encode(value)
	return buf.Bytes(), err
}

// checkEvery is how long the tables are believed to be those of this version: a
// newer program may migrate them at any time.
const checkEvery = time.Minute

// ready is the store, as long as its tables are those of this version.
func (s *Server) ready(ctx context.Context) (*store.Store, error) {
	st, err := s.Open(ctx)
	if err != nil {
		var config *ratebatch.ConfigError
		if !errors.As(err, &config) || !strings.Contains(config.Hint, "migrate") {
			err = errUnavailable(err)
		}
		return nil, err
	}
	now := s.Now()
	s.mu.Lock()
	good := s.checked == st && now.Sub(s.checkedAt).Abs() < checkEvery
	s.mu.Unlock()
	if good {
		return st, nil
	}
	if err := st.CheckSchema(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.checked, s.checkedAt = st, now
	s.mu.Unlock()
	return st, nil
}

// fail answers with an error.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, e *apiError) {
	if r.Context().Err() != nil {
		return // nobody reads it
	}
	if e.status >= http.StatusInternalServerError {
		if e.cause != nil {
			s.Log.ErrorContext(r.Context(), "request failed", "request_id", w.Header().Get("X-Request-Id"), "path", r.URL.Path, "status", e.status, "error", e.cause.Error())
		}
		if e.status == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", "5")
		}
	}
	body, err := encode(e.body())
	if err != nil {
		panic(err) // three texts
	}
	s.send(w, r, e.status, body)
}

// Serve answers on a listener until ctx ends, and lets running answers finish.
func Serve(ctx context.Context, l net.Listener, handler http.Handler, log *slog.Logger) error {
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: 35 * time.Minute, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 32 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug), BaseContext: func(net.Listener) context.Context { return ctx },
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		server.Close()
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func clientOf(r *http.Request) string {
	addr, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return addr.Addr().Unmap().String()
}
