//go:build !static

// Package chdb binds libchdb, the ClickHouse engine as a shared library,
// through purego: building needs no C compiler and no cgo.
//
// The engine is one per process and over one folder: the first Open names the
// folder, and later ones open further sessions of the same engine. A session
// runs one statement at a time; sessions are cheap (0.15 ms), so the endpoint
// opens one per request.
//
// The library takes the process down when it crashes, and it installs signal
// handlers of its own that make a Go nil dereference hang. Load and Open put
// the Go runtime's handlers back; the crash is contained by running the engine
// in a process of its own (see package engine).
package chdb

import (
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"strconv"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// The C functions of the library, bound by Load. A chdb_result and a
// chdb_insert_stream are opaque pointers that C owns.
var (
	cConnect      func(argc int, argv unsafe.Pointer) unsafe.Pointer
	cCloseConn    func(conn unsafe.Pointer)
	cQuery        func(conn, q unsafe.Pointer, qn uintptr, f unsafe.Pointer, fn uintptr, names, nameLens, vals, valLens unsafe.Pointer, n uintptr) unsafe.Pointer
	cStream       func(conn, q unsafe.Pointer, qn uintptr, f unsafe.Pointer, fn uintptr, names, nameLens, vals, valLens unsafe.Pointer, n uintptr) unsafe.Pointer
	cStreamFetch  func(conn, res unsafe.Pointer) unsafe.Pointer
	cStreamCancel func(conn, res unsafe.Pointer)
	cInsert       func(conn, q unsafe.Pointer, qn uintptr, f unsafe.Pointer, fn uintptr, names, nameLens, vals, valLens unsafe.Pointer, n uintptr) unsafe.Pointer
	cAppend       func(stream, data unsafe.Pointer, n uintptr) int32
	cDone         func(stream unsafe.Pointer) unsafe.Pointer
	cCancelInsert func(stream unsafe.Pointer)
	cInsertError  func(stream unsafe.Pointer) string
	cFreeInsert   func(stream unsafe.Pointer)
	cFree         func(res unsafe.Pointer)
	cBuffer       func(res unsafe.Pointer) unsafe.Pointer
	cLength       func(res unsafe.Pointer) uintptr
	cResultRows   func(res unsafe.Pointer) uint64
	cResultBytes  func(res unsafe.Pointer) uint64
	cReadRows     func(res unsafe.Pointer) uint64
	cReadBytes    func(res unsafe.Pointer) uint64
	cWrittenRows  func(res unsafe.Pointer) uint64
	cWrittenBytes func(res unsafe.Pointer) uint64
	cError        func(res unsafe.Pointer) string
	cSignals      func(enabled int32)
	cShutdown     func() int32
	cSigaction    func(sig int32, act, old unsafe.Pointer) int32

	loadOnce sync.Once
	errLoad  error
)

// Load opens the shared library at path. Only the first call loads; later ones
// return its outcome, because the library cannot be unloaded.
func Load(path string) error {
	loadOnce.Do(func() { errLoad = load(path) })
	return errLoad
}

func load(path string) (err error) {
	// purego panics when a symbol is missing, which a wrong file would cause.
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("load %s: %v", path, r)
		}
	}()
	lib, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return fmt.Errorf("load %s: %w", path, err)
	}
	for name, fn := range map[string]any{
		"chdb_connect":                     &cConnect,
		"chdb_close_conn":                  &cCloseConn,
		"chdb_query_with_params_n":         &cQuery,
		"chdb_stream_query_with_params_n":  &cStream,
		"chdb_stream_fetch_result":         &cStreamFetch,
		"chdb_stream_cancel_query":         &cStreamCancel,
		"chdb_stream_insert_with_params_n": &cInsert,
		"chdb_stream_append":               &cAppend,
		"chdb_stream_done":                 &cDone,
		"chdb_stream_cancel_insert":        &cCancelInsert,
		"chdb_stream_insert_error":         &cInsertError,
		"chdb_destroy_insert_stream":       &cFreeInsert,
		"chdb_destroy_query_result":        &cFree,
		"chdb_result_buffer":               &cBuffer,
		"chdb_result_length":               &cLength,
		"chdb_result_rows_read":            &cResultRows,
		"chdb_result_bytes_read":           &cResultBytes,
		"chdb_result_storage_rows_read":    &cReadRows,
		"chdb_result_storage_bytes_read":   &cReadBytes,
		"chdb_result_rows_written":         &cWrittenRows,
		"chdb_result_bytes_written":        &cWrittenBytes,
		"chdb_result_error":                &cError,
		"chdb_set_signal_handlers_enabled": &cSignals,
		"chdb_shutdown":                    &cShutdown,
	} {
		purego.RegisterLibFunc(fn, lib, name)
	}
	libc, err := purego.Dlopen("libc.so.6", purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return fmt.Errorf("load libc.so.6: %w", err)
	}
	purego.RegisterLibFunc(&cSigaction, libc, "sigaction")
	keepSignalHandlers(func() { cSignals(0) })
	return nil
}

// keepSignalHandlers runs f and puts the process's signal handlers back as
// they were. Switching the engine's handlers off, and connecting after that,
// resets SIGSEGV and its like to the default action, which would take the Go
// runtime's handlers away.
func keepSignalHandlers(f func()) {
	const sigactionSize = 256 // larger than any struct sigaction
	signals := [...]int32{4, 5, 6, 7, 8, 11, 20, 23, 31}
	var saved [len(signals)][sigactionSize]byte
	for i, s := range signals {
		cSigaction(s, nil, unsafe.Pointer(&saved[i]))
	}
	f()
	for i, s := range signals {
		cSigaction(s, unsafe.Pointer(&saved[i]), nil)
	}
}

// Shutdown stops the engine for good; every Conn must be closed before. The
// library reports false once tables exist, and the data is intact all the same.
func Shutdown() { cShutdown() }

// Error is what the engine says about a statement that it refused or ended.
type Error struct {
	Code    int // ClickHouse's error code, 0 if the text has none
	Message string
}

func (e *Error) Error() string { return e.Message }

var codePattern = regexp.MustCompile(`Code:\s*(\d+)\.`)

func asError(message string) error {
	if message == "" {
		return nil
	}
	e := &Error{Message: message}
	if m := codePattern.FindStringSubmatch(message); m != nil {
		e.Code, _ = strconv.Atoi(m[1])
	}
	return e
}

// Conn is a session of the engine. It is not safe for concurrent use.
type Conn struct {
	handle unsafe.Pointer // chdb_connection *
}

var connecting sync.Mutex // because connecting touches the signal handlers

// Open opens a session; args are the engine's own, --path first.
func Open(args ...string) (*Conn, error) {
	argv := append([]string{"clickhouse"}, args...)
	texts := make([][]byte, len(argv))
	pointers := make([]unsafe.Pointer, len(argv)+1)
	for i, a := range argv {
		texts[i] = append([]byte(a), 0)
		pointers[i] = unsafe.Pointer(&texts[i][0])
	}
	var handle unsafe.Pointer
	connecting.Lock()
	keepSignalHandlers(func() { handle = cConnect(len(argv), unsafe.Pointer(&pointers[0])) })
	connecting.Unlock()
	runtime.KeepAlive(texts)
	runtime.KeepAlive(pointers)
	if handle == nil {
		return nil, errors.New("the engine opened no session: its own log says why")
	}
	return &Conn{handle: handle}, nil
}

func (c *Conn) conn() unsafe.Pointer { return *(*unsafe.Pointer)(c.handle) }

// Close ends the session.
func (c *Conn) Close() {
	if c.handle != nil {
		cCloseConn(c.handle)
		c.handle = nil
	}
}

// Stats counts what a statement read and wrote.
type Stats struct {
	ResultRows, ResultBytes, ReadRows, ReadBytes, WrittenRows, WrittenBytes uint64
}

func (s *Stats) add(res unsafe.Pointer) {
	s.ResultRows += cResultRows(res)
	s.ResultBytes += cResultBytes(res)
	s.ReadRows += cReadRows(res)
	s.ReadBytes += cReadBytes(res)
	s.WrittenRows += cWrittenRows(res)
	s.WrittenBytes += cWrittenBytes(res)
}

var nothing [1]byte

func pointer(b []byte) unsafe.Pointer {
	if len(b) == 0 {
		return unsafe.Pointer(&nothing[0])
	}
	return unsafe.Pointer(&b[0])
}

// call hands a statement, its format and its parameters to one of the three C
// functions that start a statement; they share this signature.
func call(fn func(conn, q unsafe.Pointer, qn uintptr, f unsafe.Pointer, fn uintptr, names, nameLens, vals, valLens unsafe.Pointer, n uintptr) unsafe.Pointer,
	conn unsafe.Pointer, query, format string, params map[string]string,
) unsafe.Pointer {
	q, f := []byte(query), []byte(format)
	n := len(params)
	keep := make([][]byte, 0, 2*n)
	names, values := make([]unsafe.Pointer, 0, n+1), make([]unsafe.Pointer, 0, n+1)
	nameLens, valueLens := make([]uintptr, 0, n+1), make([]uintptr, 0, n+1)
	for k, v := range params {
		kb, vb := []byte(k), append([]byte(v), 0)
		keep = append(keep, kb, vb)
		names, nameLens = append(names, pointer(kb)), append(nameLens, uintptr(len(k)))
		values, valueLens = append(values, pointer(vb)), append(valueLens, uintptr(len(v)))
	}
	var pn, pnl, pv, pvl unsafe.Pointer
	if n > 0 {
		pn, pnl, pv, pvl = unsafe.Pointer(&names[0]), unsafe.Pointer(&nameLens[0]), unsafe.Pointer(&values[0]), unsafe.Pointer(&valueLens[0])
	}
	res := fn(conn, pointer(q), uintptr(len(q)), pointer(f), uintptr(len(f)), pn, pnl, pv, pvl, uintptr(n))
	runtime.KeepAlive(keep)
	return res
}

// Result is the whole output of a statement, in the engine's memory.
type Result struct {
	Stats
	res unsafe.Pointer
}

// Query runs a statement to its end.
func (c *Conn) Query(query, format string, params map[string]string) (*Result, error) {
	res := call(cQuery, c.conn(), query, format, params)
	if res == nil {
		return &Result{}, nil
	}
	if err := asError(cError(res)); err != nil {
		cFree(res)
		return nil, err
	}
	r := &Result{res: res}
	r.add(res)
	return r, nil
}

// Exec runs a statement whose output nobody reads.
func (c *Conn) Exec(query string) error {
	r, err := c.Query(query, "Null", nil)
	if err != nil {
		return err
	}
	r.Close()
	return nil
}

// Bytes is the output, valid until Close.
func (r *Result) Bytes() []byte {
	if r.res == nil {
		return nil
	}
	return unsafe.Slice((*byte)(cBuffer(r.res)), cLength(r.res))
}

// Close frees the output.
func (r *Result) Close() {
	if r.res != nil {
		cFree(r.res)
		r.res = nil
	}
}

// Stream is a running query whose output comes in pieces.
type Stream struct {
	Stats
	conn    *Conn
	res     unsafe.Pointer
	current unsafe.Pointer
}

// Stream starts a query.
func (c *Conn) Stream(query, format string, params map[string]string) (*Stream, error) {
	res := call(cStream, c.conn(), query, format, params)
	if res == nil {
		return nil, errors.New("the engine started no stream")
	}
	if err := asError(cError(res)); err != nil {
		cFree(res)
		return nil, err
	}
	return &Stream{conn: c, res: res}, nil
}

// Next returns the next piece of output, which is valid until the next call,
// and nil at the end. In Native a piece consists of whole blocks.
func (s *Stream) Next() ([]byte, error) {
	s.freeCurrent()
	piece := cStreamFetch(s.conn.conn(), s.res)
	if piece == nil {
		return nil, nil
	}
	if err := asError(cError(piece)); err != nil {
		cFree(piece)
		return nil, err
	}
	s.add(piece)
	n := cLength(piece)
	if n == 0 {
		cFree(piece)
		return nil, nil
	}
	s.current = piece
	return unsafe.Slice((*byte)(cBuffer(piece)), n), nil
}

func (s *Stream) freeCurrent() {
	if s.current != nil {
		cFree(s.current)
		s.current = nil
	}
}

// Cancel ends the query before its end.
func (s *Stream) Cancel() { cStreamCancel(s.conn.conn(), s.res) }

// Close frees the stream; it does not end a running query.
func (s *Stream) Close() {
	s.freeCurrent()
	if s.res != nil {
		cFree(s.res)
		s.res = nil
	}
}

// Insert is an INSERT whose data is pushed in pieces.
type Insert struct{ stream unsafe.Pointer }

// Insert starts an INSERT. The statement must have no FORMAT clause: format
// stands for it.
func (c *Conn) Insert(query, format string, params map[string]string) (*Insert, error) {
	stream := call(cInsert, c.conn(), query, format, params)
	if stream == nil {
		return nil, errors.New("the engine started no insert")
	}
	if err := asError(cInsertError(stream)); err != nil {
		cFreeInsert(stream)
		return nil, err
	}
	return &Insert{stream}, nil
}

// Write pushes data. An error is usually about rows pushed earlier: the engine
// reads on its own threads.
func (i *Insert) Write(data []byte) (int, error) {
	if len(data) == 0 {
		return 0, nil
	}
	if cAppend(i.stream, pointer(data), uintptr(len(data))) != 0 {
		if err := asError(cInsertError(i.stream)); err != nil {
			return 0, err
		}
		return 0, errors.New("the engine ended the insert")
	}
	return len(data), nil
}

// Done ends the data and waits until the rows are stored.
func (i *Insert) Done() (Stats, error) {
	var stats Stats
	res := cDone(i.stream)
	if res == nil {
		return stats, errors.New("the engine did not confirm the insert")
	}
	defer cFree(res)
	stats.add(res)
	return stats, asError(cError(res))
}

// Cancel gives the insert up. Blocks that were complete before may be stored.
func (i *Insert) Cancel() { cCancelInsert(i.stream) }

// Close frees the insert.
func (i *Insert) Close() {
	if i.stream != nil {
		cFreeInsert(i.stream)
		i.stream = nil
	}
}
