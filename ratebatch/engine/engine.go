// Package engine says where ClickHouse is: a server by URL, or the embedded
// engine (libchdb) over a folder. Everything above it talks through one
// clickhouse-go connection and does not know which one it got.
//
// The embedded engine runs in a child process behind a ClickHouse HTTP
// endpoint on the loopback interface (internal/endpoint). Commands that work
// on the same folder share one engine: the first one starts it, the others
// join, and it leaves when the last one has left, whoever started it. The
// child is this same executable, so main and TestMain call ServeIfChild first.
package engine

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// EnvPassword is the environment variable with the password of the server, so
// that it stands neither in a command line nor in a file.
const EnvPassword = "RATEBATCH_CLICKHOUSE_PASSWORD"

// Options say which ClickHouse to use and how.
type Options struct {
	// URL of a server: clickhouse://user:password@host:9000/db?secure=true,
	// http://host:8123 or https://host:8443. Empty: the embedded engine.
	URL          string
	PasswordFile string // holds the password for URL; see also EnvPassword

	DataDir string // folder of the embedded engine
	Lib     string // path of libchdb.so; empty: RATEBATCH_ENGINE_LIB, else the installed one
	Port    int    // loopback port of the embedded engine; 0: any free one
	// Finish is what running statements get when the engine is told to leave
	// by SIGTERM, 10 s if 0. It counts when this Open starts the engine.
	Finish time.Duration

	Database string // a path in URL wins over it; empty: none
	Create   bool   // create the database if it does not exist

	MaxConns int // connections at once, 16 if 0
	Log      *slog.Logger
}

// Engine is a connection pool to ClickHouse.
type Engine struct {
	conn     driver.Conn
	options  *clickhouse.Options
	version  string
	address  string
	embedded *embedded // nil for a server

	closeOnce sync.Once
	errClose  error
}

// Open connects, checks that ClickHouse answers and that the database exists.
// Errors are ConfigErrors where a person has to correct something, and
// TryAgainErrors where ClickHouse is away for now.
func Open(ctx context.Context, o Options) (*Engine, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.MaxConns == 0 {
		o.MaxConns = 16
	}
	if o.URL != "" {
		return openServer(ctx, o)
	}
	return openEmbedded(ctx, o)
}

// Conn is the connection pool. It never sends a statement twice by itself.
func (e *Engine) Conn() driver.Conn { return e.conn }

// Embedded says whether this is the embedded engine: it knows no replication,
// no cluster and no users.
func (e *Engine) Embedded() bool { return e.embedded != nil }

// Version of ClickHouse, such as 26.7.2.1.
func (e *Engine) Version() string { return e.version }

// Address says where ClickHouse is, for messages; it holds no secret.
func (e *Engine) Address() string { return e.address }

// Database is the one that unqualified names of tables are looked up in.
func (e *Engine) Database() string { return e.options.Auth.Database }

// ClientOptions are those of the pool, for another client with settings of its
// own. They hold the password.
func (e *Engine) ClientOptions() *clickhouse.Options {
	o := *e.options
	o.Settings = maps.Clone(o.Settings)
	return &o
}

// URL of the embedded engine's endpoint; empty for a server.
func (e *Engine) URL() string {
	if e.embedded == nil {
		return ""
	}
	return e.embedded.endpoint.URL
}

// Lost is closed when the embedded engine is gone; nil for a server.
func (e *Engine) Lost() <-chan struct{} {
	if e.embedded == nil {
		return nil
	}
	return e.embedded.lost
}

// ErrLost is the error to report once Lost is closed.
func (e *Engine) ErrLost() error { return e.embedded.gone() }

// Close gives the connections back and leaves the embedded engine, which goes
// when this was its last client.
func (e *Engine) Close() error {
	e.closeOnce.Do(func() {
		e.errClose = e.conn.Close()
		if e.embedded != nil {
			e.embedded.leave()
		}
	})
	return e.errClose
}

// WithFileAccess lets the statements made with the returned context reach
// outside the engine's own data: file(), url(), s3(), INTO OUTFILE, … The
// embedded engine refuses them otherwise. Use it for Ratebatch's own statements
// only, never for text that a user gave. A server has its own grants; there it
// changes nothing.
func (e *Engine) WithFileAccess(ctx context.Context) context.Context {
	if e.embedded == nil {
		return ctx
	}
	return clickhouse.Context(ctx, clickhouse.WithSettings(clickhouse.Settings{"ratebatch_access": e.embedded.endpoint.Access}))
}

// settings are what every statement runs with.
func settings() clickhouse.Settings {
	return clickhouse.Settings{
		"async_insert":                    0,         // an acknowledged insert is stored
		"session_timezone":                "UTC",     // whatever the server's
		"decimal_check_overflow":          1,         // money never wraps around
		"distributed_foreground_insert":   1,         // on a cluster too: not in a queue of the server that took it
		"max_partitions_per_insert_block": 0,         // a backfill touches many days
		"max_query_size":                  256 << 20, // coefficients come as text
		"date_time_input_format":          "best_effort",
		// Compiled expressions take Int128 for unsigned in greatest, least and
		// bitShiftRight (seen in 26.7): right without compilation.
		"compile_expressions": 0,
	}
}

// common fills in what a server and the embedded engine have in common. No
// read timeout cuts a long INSERT … SELECT short: the context decides.
func common(o Options, c *clickhouse.Options) {
	if c.Settings == nil {
		c.Settings = clickhouse.Settings{}
	}
	for k, v := range settings() {
		if _, given := c.Settings[k]; !given {
			c.Settings[k] = v
		}
	}
	c.DialTimeout = 10 * time.Second
	c.ReadTimeout = 7 * 24 * time.Hour
	c.MaxOpenConns = o.MaxConns
	c.MaxIdleConns = o.MaxConns
	c.ConnMaxLifetime = time.Hour
	// The client makes a transport for each of its connections, and those that
	// end while a cancelled answer still arrives keep a socket for an hour. One
	// transport for all has a bound.
	var shared *http.Transport
	var once sync.Once
	c.TransportFunc = func(t *http.Transport) (http.RoundTripper, error) {
		once.Do(func() {
			shared = t
			shared.MaxIdleConns, shared.MaxIdleConnsPerHost = o.MaxConns, o.MaxConns
			shared.IdleConnTimeout = 90 * time.Second
		})
		return shared, nil
	}
	c.BlockBufferSize = 10
	c.ClientInfo.Products = append(c.ClientInfo.Products, struct{ Name, Version string }{"ratebatch", "1"})
}
