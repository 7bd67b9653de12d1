// Package enginetest gives tests a real ClickHouse: the embedded engine, one
// per test binary, and a fresh database for each test.
package enginetest

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ratebatch/ratebatch/ratebatch/engine"
	"github.com/ratebatch/ratebatch/ratebatch/engine/internal/child"
)

// EnvServer names a real server that tests run against as well.
const EnvServer = "RATEBATCH_TEST_CLICKHOUSE"

var shared struct {
	sync.Mutex
	dir    string
	engine *engine.Engine // keeps the engine up between tests
}

// Main is what a TestMain calls:
//
//	func TestMain(m *testing.M) { enginetest.Main(m) }
//
// It lets the test binary serve as the engine, runs the tests, waits until the
// engine has left and fails if goroutines are left over.
func Main(m *testing.M) {
	engine.ServeIfChild()
	code := m.Run()
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, "enginetest:", err)
		code = max(code, 1)
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "enginetest: goroutines are left:", err)
			code = 1
		}
	}
	os.Exit(code)
}

func stop() error {
	shared.Lock()
	defer shared.Unlock()
	if shared.engine != nil {
		if err := shared.engine.Close(); err != nil {
			return err
		}
		shared.engine = nil
	}
	child.WaitAll()
	if shared.dir != "" {
		// With -race the engine's process has the detector as well, and its
		// reports go to its log.
		log, err := os.ReadFile(filepath.Join(shared.dir, "engine", "log"))
		if err == nil && strings.Contains(string(log), "DATA RACE") {
			return fmt.Errorf("the engine's process has a data race:\n%s", log)
		}
		return os.RemoveAll(shared.dir)
	}
	return nil
}

// dataDir gives the folder of the binary's shared engine and keeps the engine
// running, so that tests join it instead of starting one each.
func dataDir(tb testing.TB) string {
	tb.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.engine != nil {
		return shared.dir
	}
	dir, err := os.MkdirTemp("", "ratebatch-test-")
	if err != nil {
		tb.Fatal(err)
	}
	e, err := engine.Open(context.Background(), engine.Options{DataDir: dir})
	if err != nil {
		_ = os.RemoveAll(dir)
		tb.Fatalf("%v\n(make test does it all)", err)
	}
	shared.dir, shared.engine = dir, e
	return dir
}

// Options are for tests that run the whole program in-process: a fresh,
// not yet created database on the shared engine, dropped at cleanup.
func Options(tb testing.TB) engine.Options {
	tb.Helper()
	o := engine.Options{DataDir: dataDir(tb), Database: databaseName(tb), Log: slog.New(slog.DiscardHandler)}
	tb.Cleanup(func() { drop(tb, o) })
	return o
}

// Open gives a connection to a fresh empty database on the embedded engine.
func Open(tb testing.TB) *engine.Engine {
	tb.Helper()
	return open(tb, Options(tb))
}

// Server is one ClickHouse that tests run against.
type Server struct {
	Name string
	open func(testing.TB) engine.Options
}

// Open gives a connection to a fresh empty database there.
func (s Server) Open(tb testing.TB) *engine.Engine { tb.Helper(); return open(tb, s.open(tb)) }

// Servers are the embedded engine and, where RATEBATCH_TEST_CLICKHOUSE names
// one, a real server.
func Servers(tb testing.TB) []Server {
	tb.Helper()
	servers := []Server{{"embedded", Options}}
	if address := os.Getenv(EnvServer); address != "" {
		servers = append(servers, Server{"server", func(tb testing.TB) engine.Options {
			tb.Helper()
			o := engine.Options{URL: withoutPath(tb, address), Database: databaseName(tb), Log: slog.New(slog.DiscardHandler)}
			tb.Cleanup(func() { drop(tb, o) })
			return o
		}})
	}
	return servers
}

// withoutPath drops the database from a URL: each test has its own.
func withoutPath(tb testing.TB, text string) string {
	tb.Helper()
	u, err := url.Parse(text)
	if err != nil {
		tb.Fatalf("%s is no URL", EnvServer)
	}
	u.Path = ""
	return u.String()
}

func open(tb testing.TB, o engine.Options) *engine.Engine {
	tb.Helper()
	o.Create = true
	e, err := engine.Open(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := e.Close(); err != nil {
			tb.Error(err)
		}
	})
	return e
}

func databaseName(tb testing.TB) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToLower(tb.Name()))
	return fmt.Sprintf("test_%.40s_%s", name, strings.ToLower(rand.Text()[:8]))
}

func drop(tb testing.TB, o engine.Options) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	name := o.Database
	o.Database = ""
	e, err := engine.Open(ctx, o)
	if err != nil {
		tb.Errorf("drop %s: %v", name, err)
		return
	}
	if err := e.Conn().Exec(ctx, "DROP DATABASE IF EXISTS "+name+" SYNC"); err != nil {
		tb.Errorf("drop %s: %v", name, err)
	}
	if err := e.Close(); err != nil {
		tb.Errorf("drop %s: %v", name, err)
	}
}
