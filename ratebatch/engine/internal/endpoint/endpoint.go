// Package endpoint speaks the ClickHouse HTTP protocol over libchdb, so that
// clickhouse-go, curl and everything else that talks to a ClickHouse server
// talks to the embedded engine as well.
//
// It differs from a server where the library does: only formats without a head
// or a tail stream (the others are made whole in memory, up to
// MaxBufferedResult); the engine does not know a client's query_id, so KILL
// QUERY WHERE query_id = '…' is answered here; there are no users, so one
// password is asked for, and statements that reach outside the engine's folder
// need the access token on top (see guard).
package endpoint

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ClickHouse/ch-go/compress"
	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/ratebatch/engine/internal/chdb"
	"github.com/ratebatch/ratebatch/ratebatch/sqltext"
)

// MaxBufferedResult is how many bytes (of columns in memory) a result may have
// in a format that the engine can only write whole.
const MaxBufferedResult = 32 << 20

// insertBlock is how many bytes of pushed rows the engine collects for a part.
const insertBlock = 64 << 20

// maxStatements run at once; more wait for their turn.
const maxStatements = 64

// accessParameter is the URL parameter that carries the access token. It looks
// like a setting, so a client can add it to single statements.
const accessParameter = "ratebatch_access"

// HoldPath is where a client says that it is there: the engine stays while at
// least one such request is open.
const HoldPath = "/ratebatch/hold"

// StatusPath answers what the endpoint holds, for tests and for a person who
// wonders.
const StatusPath = "/ratebatch/status"

// Options of a Server.
type Options struct {
	Args     []string // the engine's arguments, --path first
	User     string
	Password string
	Access   string // token for statements that reach outside
	Log      *slog.Logger
}

// Server answers HTTP requests. Make one per process: the engine is one.
type Server struct {
	o        Options
	guard    *guard
	version  string
	timezone string
	slots    chan struct{}
	clients  *clients

	control sync.Mutex // guards root
	root    *chdb.Conn // keeps the engine up, and kills statements

	mu       sync.Mutex
	sessions map[string]*session
	spare    map[preparation][]*lease
	spares   int
	running  map[*running]struct{}
	leaving  bool
	idle     chan struct{} // closed when leaving and nothing runs any more
}

// running is a statement in the engine.
type running struct {
	id  string // query_id
	tag string // the engine knows it by this log_comment
	end chan struct{}

	killed bool // guarded by Server.mu: a KILL was or will be sent
}

// New starts the engine.
func New(o Options) (*Server, error) {
	root, err := chdb.Open(o.Args...)
	if err != nil {
		return nil, err
	}
	s := &Server{
		o: o, root: root, slots: make(chan struct{}, maxStatements), clients: newClients(),
		sessions: map[string]*session{}, spare: map[preparation][]*lease{}, running: map[*running]struct{}{}, idle: make(chan struct{}),
	}
	if err := s.prepare(); err != nil {
		root.Close()
		return nil, err
	}
	return s, nil
}

// prepare takes away what the library leaves open. Its database "default"
// overlays the file system: SELECT * FROM "/etc/passwd" works there. One of
// engine Dictionary holds no tables and reads nothing.
func (s *Server) prepare() error {
	for _, statement := range []string{
		"DROP DATABASE IF EXISTS default SYNC",
		"CREATE DATABASE default ENGINE = Dictionary",
	} {
		if err := s.root.Exec(statement); err != nil {
			return err
		}
	}
	facts, err := s.column("SELECT version() UNION ALL SELECT timezone()")
	if err != nil {
		return err
	}
	if len(facts) != 2 {
		return errors.New("the engine does not say its version")
	}
	s.version, s.timezone = facts[0], facts[1]
	functions, err := s.column("SELECT name FROM system.table_functions")
	if err != nil {
		return err
	}
	engines, err := s.column("SELECT name FROM system.table_engines UNION ALL SELECT name FROM system.database_engines")
	if err != nil {
		return err
	}
	s.guard = newGuard(functions, engines)
	return nil
}

func (s *Server) column(query string) ([]string, error) {
	r, err := s.root.Query(query, "TabSeparated", nil)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return strings.Fields(string(r.Bytes())), nil
}

// Version is the engine's.
func (s *Server) Version() string { return s.version }

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/ping", "/replicas_status":
		_, _ = io.WriteString(w, "Ok.\n")
		return
	case HoldPath:
		s.hold(w, r)
		return
	case StatusPath:
		s.status(w, r)
		return
	case "/", "":
	default:
		http.Error(w, "There is no handle "+r.URL.Path, http.StatusNotFound)
		return
	}
	q := r.URL.Query()
	if len(q) == 0 && r.Method == http.MethodGet && r.Header.Get("X-ClickHouse-User") == "" {
		_, _ = io.WriteString(w, "Ok.\n")
		return
	}
	id := q.Get("query_id")
	if id == "" {
		id = uuid.NewString()
	}
	h := w.Header()
	h.Set("X-ClickHouse-Query-Id", id)
	h.Set("X-ClickHouse-Server-Display-Name", "ratebatch embedded engine")
	h.Set("X-ClickHouse-Timezone", s.timezone)
	out := &response{w: w, started: time.Now(), tag: randomHex(8), holdAll: q.Get("wait_end_of_query") == "1"} //nolint:forbidigo // a timeout
	if err := s.handle(out, r, id); err != nil {
		out.fail(asError(err), s.version)
	}
}

func (s *Server) authenticate(r *http.Request) error {
	q := r.URL.Query()
	user, password := "default", ""
	if x := r.Header.Get("X-ClickHouse-User"); x != "" {
		user, password = x, r.Header.Get("X-ClickHouse-Key")
	} else if u, p, ok := r.BasicAuth(); ok {
		user, password = u, p
	} else if q.Has("user") {
		user, password = q.Get("user"), q.Get("password")
	}
	if !same(user, s.o.User) || !same(password, s.o.Password) {
		return errorf(516, "AUTHENTICATION_FAILED", "%s: Authentication failed: password is incorrect, or there is no user with such name", user)
	}
	return nil
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

func (s *Server) handle(out *response, r *http.Request, id string) error {
	if err := s.authenticate(r); err != nil {
		return err
	}
	q := r.URL.Query()
	if q.Get("compress") == "1" {
		method := compress.LZ4
		if strings.EqualFold(q.Get("network_compression_method"), "ZSTD") {
			method = compress.ZSTD
		}
		out.frames = compress.NewWriter(compress.LevelZero, method)
	}
	out.useGzip = q.Get("enable_http_compression") == "1" && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip")
	req, err := readRequest(r, q)
	if err != nil {
		return err
	}
	if err := s.check(req, q.Get(accessParameter)); err != nil {
		return err
	}
	if killed, ok := killsByID(&req.statement, req.params); ok {
		return s.kill(out, r, killed)
	}
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-r.Context().Done():
		return errCancelled
	}
	l, err := s.lease(q, r, req, id)
	if err != nil {
		return err
	}
	run := &running{id: id, tag: l.tag, end: make(chan struct{})}
	if err := s.begin(run); err != nil {
		l.release(false)
		return err
	}
	go s.endWithClient(r.Context(), run)
	err = s.run(r.Context(), out, l.conn, q, r, req)
	killed := s.finish(run)
	l.release(err == nil && !killed && req.leavesNoTrace())
	return err
}

// check refuses what the engine must not or cannot do.
func (s *Server) check(req *request, access string) error {
	if reason := s.guard.neverAllowed(&req.statement); reason != "" {
		return errorf(497, "ACCESS_DENIED", "The embedded engine refuses %s", reason)
	}
	if req.selects && req.format != "" && req.calls("input") {
		// The library takes it without an error and inserts nothing.
		return errorf(48, "NOT_IMPLEMENTED", "The embedded engine cannot INSERT … SELECT FROM input(): insert into a table first, or use a ClickHouse server")
	}
	if s.o.Access != "" && same(access, s.o.Access) {
		return nil
	}
	reason := s.guard.denied(&req.statement)
	for _, x := range req.settings {
		if deniedSettings[x.name] {
			reason = "the setting " + x.name
		}
	}
	for _, t := range req.tables {
		if st := parse(t.structure); reason == "" {
			reason = s.guard.denied(&st)
		}
	}
	if reason != "" {
		return errorf(497, "ACCESS_DENIED", "The embedded engine refuses %s, because it reaches outside the engine's own data; only Ratebatch's own statements may", reason)
	}
	return nil
}

// calls says whether the statement calls a function of that name.
func (s *statement) calls(name string) bool {
	for i, t := range s.tokens {
		if (t.kind == word || t.kind == quoted) && strings.EqualFold(s.name(t), name) && s.symbolAt(i+1, '(') {
			return true
		}
	}
	return false
}

// preparation is what a session needs before the statement: its database and
// settings. Sessions with the same preparation are alike.
type preparation struct {
	database string
	set      string // without log_comment
	comment  string // the client's log_comment
}

func (s *Server) preparation(r *http.Request, req *request) preparation {
	// This build buffers inserts and takes bare expressions for statements,
	// which a server does not; a client's own settings come after and win.
	p := preparation{database: req.database, set: "SET async_insert = 0, implicit_select = 0"}
	if req.reads() && !streams(outputFormat(r, req)) {
		p.set += ", max_result_bytes = " + strconv.Itoa(MaxBufferedResult) + ", result_overflow_mode = 'throw'"
	}
	if req.data != nil {
		// A million rows at once, the default, is memory that a machine with a
		// small engine beside its other work does not have to spare.
		p.set += ", min_insert_block_size_bytes = " + strconv.Itoa(insertBlock)
	}
	if req.literalOK {
		p.set += ", input_format_values_interpret_expressions = 0"
	}
	for _, x := range req.settings {
		if x.name == "log_comment" {
			p.comment = x.value + " "
			continue
		}
		p.set += ", " + x.name + " = " + sqltext.String(x.value)
	}
	if r.Method == http.MethodGet {
		p.set += ", readonly = 2" // as a server does: a GET cannot change anything
	}
	return p
}

// apply prepares a session. The engine does not know a client's query_id, so
// a statement is found, to be killed, by the session's tag in its log_comment.
func (p preparation) apply(conn *chdb.Conn, tag string) error {
	if p.database != "" {
		if err := conn.Exec("USE " + sqltext.Name(p.database)); err != nil {
			return err
		}
	}
	// The comment goes first: after readonly nothing can be set.
	return conn.Exec(strings.Replace(p.set, "SET ", "SET log_comment = "+sqltext.String(tag)+", ", 1))
}

func (t externalTable) create(conn *chdb.Conn) error {
	if err := conn.Exec("CREATE TEMPORARY TABLE " + sqltext.Name(t.name) + " (" + t.structure + ")"); err != nil {
		return err
	}
	format := t.format
	if format == "" {
		format = "TabSeparated"
	}
	in, err := conn.Insert("INSERT INTO "+sqltext.Name(t.name), format, nil)
	if err != nil {
		return err
	}
	defer in.Close()
	if _, err := in.Write(t.data); err != nil {
		return err
	}
	_, err = in.Done()
	return err
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
