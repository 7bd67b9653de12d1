//go:build static

// Package chdb without the library: 'go build -tags static' gives a program that
// needs nothing of its machine, not even libc (purego needs the dynamic loader),
// for servers only.
package chdb

import "errors"

var errStatic = errors.New("this program was built for ClickHouse servers only (tag static): name one with --clickhouse, or use the other build")

// Load says that there is no engine.
func Load(string) error { return errStatic }

// Shutdown has nothing to do.
func Shutdown() {}

// Error is never seen here.
type Error struct {
	Code    int // ClickHouse's error code, 0 if the text has none
	Message string
}

func (e *Error) Error() string { return e.Message }

// Conn is never open here.
type Conn struct{}

// Open says that there is no engine.
func Open(...string) (*Conn, error) { return nil, errStatic }

// Close has nothing to do.
func (c *Conn) Close() {}

// Stats are those of a statement.
type Stats struct {
	ResultRows, ResultBytes, ReadRows, ReadBytes, WrittenRows, WrittenBytes uint64
}

// Result is never seen here; nor are Stream and Insert.
type Result struct{ Stats }

// Query says that there is no engine, as all that follows.
func (c *Conn) Query(string, string, map[string]string) (*Result, error) { return nil, errStatic }

// Exec says so too.
func (c *Conn) Exec(string) error { return errStatic }

// Bytes are none.
func (r *Result) Bytes() []byte { return nil }

// Close has nothing to do.
func (r *Result) Close() {}

// Stream is never seen here.
type Stream struct{ Stats }

// Stream says that there is no engine.
func (c *Conn) Stream(string, string, map[string]string) (*Stream, error) { return nil, errStatic }

// Next says so too.
func (s *Stream) Next() ([]byte, error) { return nil, errStatic }

// Cancel has nothing to do.
func (s *Stream) Cancel() {}

// Close has nothing to do.
func (s *Stream) Close() {}

// Insert is never seen here.
type Insert struct{}

// Insert says that there is no engine.
func (c *Conn) Insert(string, string, map[string]string) (*Insert, error) { return nil, errStatic }

// Write says so too.
func (i *Insert) Write([]byte) (int, error) { return 0, errStatic }

// Done says so too.
func (i *Insert) Done() (Stats, error) { return Stats{}, errStatic }

// Cancel has nothing to do.
func (i *Insert) Cancel() {}

// Close has nothing to do.
func (i *Insert) Close() {}
