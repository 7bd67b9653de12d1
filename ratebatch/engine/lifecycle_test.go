package engine_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/engine"
)

// envClient makes the test binary a client of the engine in the folder it
// names: it says the engine's process id and stays until its input ends.
const envClient = "RATEBATCH_TEST_CLIENT"

func runClient(dir string) int {
	e, err := engine.Open(context.Background(), engine.Options{DataDir: dir})
	if err != nil {
		fmt.Println("error:", err)
		return ratebatch.ExitCode(err)
	}
	fmt.Println(endpointOf(dir).PID)
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test closes it
	if err := e.Close(); err != nil {
		return 1
	}
	return 0
}

type endpointFile struct {
	URL, User, Password string
	PID                 int
}

func endpointOf(dir string) endpointFile {
	var e endpointFile
	text, err := os.ReadFile(filepath.Join(dir, "engine", "endpoint.json"))
	if err == nil {
		err = json.Unmarshal(text, &e)
	}
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
	}
	return e
}

// client is another process that uses the engine.
type client struct {
	*exec.Cmd
	stdin  io.WriteCloser
	answer string
}

func startClient(t *testing.T, dir string) *client {
	t.Helper()
	c := &client{Cmd: exec.CommandContext(t.Context(), os.Args[0])}
	c.Env = append(os.Environ(), envClient+"="+dir)
	c.Stderr = os.Stderr
	var err error
	if c.stdin, err = c.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	c.answer = strings.TrimSpace(line)
	return c
}

func (c *client) leave(t *testing.T) {
	t.Helper()
	if err := c.stdin.Close(); err != nil {
		t.Error(err)
	}
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
}

func open(t *testing.T, dir string) *engine.Engine {
	t.Helper()
	e, err := engine.Open(t.Context(), engine.Options{DataDir: dir, Database: "d", Create: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() }) // the engine may be gone by intention
	return e
}

func alive(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(text), ") Z ")
}

func waitGone(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); alive(pid); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("engine %d still runs 5 s later", pid)
		}
	}
}

func ask(t *testing.T, e *engine.Engine) error {
	t.Helper()
	var n uint8
	return e.Conn().QueryRow(t.Context(), "SELECT 1").Scan(&n)
}

func TestStartsInHalfASecond(t *testing.T) {
	// The machine may be busy with other tests, for a while: the best start tells what
	// the engine needs.
	const limit = 500 * time.Millisecond
	var took []time.Duration
	for len(took) < 5 || slices.Min(took) > limit && len(took) < 40 {
		dir := t.TempDir()
		started := time.Now()
		e, err := engine.Open(t.Context(), engine.Options{DataDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(started).Round(time.Millisecond))
		pid := endpointOf(dir).PID
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		waitGone(t, pid)
	}
	t.Logf("from Open to a connection that answers: %v", took)
	if best := slices.Min(took); best > limit {
		t.Errorf("the engine needs %s to start, want less than %s", best, limit)
	}
}

func TestEngineLeavesAfterItsLastClient(t *testing.T) {
	dir := t.TempDir()
	starter := startClient(t, dir)
	joined := open(t, dir)
	pid := endpointOf(dir).PID
	if fmt.Sprint(pid) != starter.answer {
		t.Fatalf("two engines: %s and %d", starter.answer, pid)
	}
	starter.leave(t)
	time.Sleep(time.Second) // longer than the grace
	if err := ask(t, joined); err != nil {
		t.Fatalf("the engine left with the one that started it: %v", err)
	}
	if err := joined.Close(); err != nil {
		t.Error(err)
	}
	waitGone(t, pid)
	if _, err := os.Stat(filepath.Join(dir, "engine", "endpoint.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the password is left behind: %v", err)
	}
}

func TestNoOrphanEngineAfterSIGKILL(t *testing.T) {
	dir := t.TempDir()
	a, b := startClient(t, dir), startClient(t, dir)
	pid := endpointOf(dir).PID
	for _, c := range []*client{a, b} {
		if !alive(pid) {
			t.Fatal("the engine left before its last client")
		}
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = c.Wait() // killed
		time.Sleep(500 * time.Millisecond)
	}
	waitGone(t, pid)
}

func TestCommandsOfTheSameInstantShareOneEngine(t *testing.T) {
	for range 3 {
		dir := t.TempDir()
		var wg sync.WaitGroup
		clients := make([]*client, 6)
		for i := range clients {
			wg.Go(func() { clients[i] = startClient(t, dir) })
		}
		wg.Wait()
		for _, c := range clients {
			if c.answer != clients[0].answer {
				t.Errorf("engines %s and %s on one folder", clients[0].answer, c.answer)
			}
			c.leave(t)
		}
		// A new client in the very moment when the engine leaves.
		next := startClient(t, dir)
		if strings.HasPrefix(next.answer, "error") {
			t.Error(next.answer)
		}
		next.leave(t)
	}
}

func TestCrashIsOneClearError(t *testing.T) {
	dir := t.TempDir()
	e := open(t, dir)
	if err := e.Conn().Exec(t.Context(), "CREATE TABLE t (a UInt64) ENGINE = MergeTree ORDER BY a"); err != nil {
		t.Fatal(err)
	}
	if err := e.Conn().Exec(t.Context(), "INSERT INTO t SELECT number FROM numbers(100000)"); err != nil {
		t.Fatal(err)
	}
	rows, err := e.Conn().Query(t.Context(), "SELECT number FROM numbers(100000000000)")
	if err != nil {
		t.Fatal(err)
	}
	batch, err := e.Conn().PrepareBatch(t.Context(), "INSERT INTO t")
	if err != nil {
		t.Fatal(err)
	}
	if err := batch.Append(uint64(1)); err != nil {
		t.Fatal(err)
	}
	running := make(chan error, 1)
	go func() {
		running <- e.Conn().Exec(t.Context(), "SELECT sum(sipHash64(number)) FROM numbers(1000000000000)")
	}()
	time.Sleep(200 * time.Millisecond)
	pid := endpointOf(dir).PID
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
	}
	for name, err := range map[string]error{
		"a running statement": <-running, "a stream": rows.Err(), "a batch": batch.Send(), "the next statement": ask(t, e),
	} {
		if !errors.Is(err, engine.ErrEngineGone) || ratebatch.ExitCode(err) != ratebatch.ExitTryAgain || !strings.Contains(err.Error(), "run the command again") {
			t.Errorf("%s: %v", name, err)
		}
	}
	select {
	case <-e.Lost():
	default:
		t.Error("the loss is not reported")
	}
	waitGone(t, pid)

	// The endpoint file is stale now, and somebody else sits on the port.
	stale := endpointOf(dir)
	u, err := url.Parse(stale.URL)
	if err != nil || stale.PID != pid {
		t.Fatal(stale, err)
	}
	listener, err := net.Listen("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	impostor := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("the password of a dead engine was sent to whoever took its port")
	}), ReadHeaderTimeout: time.Second}
	done := make(chan struct{})
	go func() { defer close(done); _ = impostor.Serve(listener) }()
	next := open(t, dir)
	var n uint64
	if err := next.Conn().QueryRow(t.Context(), "SELECT count() FROM t").Scan(&n); err != nil || n != 100000 {
		t.Errorf("after the crash: %d rows of 100000, %v", n, err)
	}
	_ = impostor.Close()
	<-done
}

func TestSIGTERM(t *testing.T) {
	for name, tt := range map[string]struct {
		statement string
		finishes  bool
	}{
		"a statement that ends in time is finished": {"SELECT sleep(1)", true},
		"a longer one is cancelled":                 {"SELECT sum(sipHash64(number)) FROM numbers(1000000000000)", false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			e, err := engine.Open(t.Context(), engine.Options{DataDir: dir, Finish: 1500 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = e.Close() }()
			pid := endpointOf(dir).PID
			running := make(chan error, 1)
			go func() { running <- e.Conn().Exec(t.Context(), tt.statement) }()
			time.Sleep(300 * time.Millisecond)
			if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			// The signal comes through when a busy machine lets it.
			err = ask(t, e)
			for deadline := time.Now().Add(5 * time.Second); err == nil && time.Now().Before(deadline); err = ask(t, e) {
				time.Sleep(20 * time.Millisecond)
			}
			if ratebatch.ExitCode(err) != ratebatch.ExitTryAgain {
				t.Errorf("a statement while the engine leaves: %v", err)
			}
			err = <-running
			if tt.finishes && err != nil || !tt.finishes && err == nil {
				t.Errorf("the statement: %v", err)
			}
			waitGone(t, pid)
		})
	}
}

func TestFolderIsPrivate(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	for name, want := range map[string]os.FileMode{"engine": 0o700, "engine/endpoint.json": 0o600, "engine/log": 0o600, "engine/store": 0o700} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s has mode %o, want %o", name, info.Mode().Perm(), want)
		}
	}
	u, err := url.Parse(endpointOf(dir).URL)
	if err != nil || u.Hostname() != "127.0.0.1" {
		t.Errorf("the engine listens on %v, %v", u, err)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can try it as another user; the modes above are what keeps others out")
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"engine/endpoint.json", "engine/store/metadata/d.sql"} {
		cat := exec.CommandContext(t.Context(), "cat", filepath.Join(dir, name))
		cat.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		if out, err := cat.CombinedOutput(); err == nil || !strings.Contains(string(out), "Permission denied") {
			t.Errorf("another user reads %s: %s", name, out)
		}
	}
}

func TestUnusableFolders(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	held := t.TempDir()
	if err := os.MkdirAll(filepath.Join(held, "engine"), 0o700); err != nil {
		t.Fatal(err)
	}
	lock, err := os.Create(filepath.Join(held, "engine", "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	_, _ = fmt.Fprintln(lock, os.Getpid())
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		o    engine.Options
		want string
	}{
		"a file":                       {engine.Options{DataDir: file}, "not a directory"},
		"none":                         {engine.Options{}, "--data"},
		"held by something else":       {engine.Options{DataDir: held}, "is in use by process"},
		"the engine's own database":    {engine.Options{DataDir: t.TempDir(), Database: "default"}, "--database"},
		"a missing library":            {engine.Options{DataDir: t.TempDir(), Lib: "/nowhere/libchdb.so"}, "ratebatch engine install"},
		"a library that is none":       {engine.Options{DataDir: t.TempDir(), Lib: file}, "ratebatch engine install"},
		"a database that is not there": {engine.Options{DataDir: t.TempDir(), Database: "nope"}, "ratebatch migrate"},
		"a port that is not to be had": {engine.Options{DataDir: t.TempDir(), Port: 1 << 20}, "--port"},
		"a URL of nothing":             {engine.Options{URL: "ftp://x"}, "clickhouse://"},
		"a URL that cannot be read":    {engine.Options{URL: "http://u:secret@[::1"}, "clickhouse://"},
		"a password file that is not":  {engine.Options{URL: "http://localhost:1", PasswordFile: "/nowhere"}, "password"},
		"a certificate that is not":    {engine.Options{URL: "https://localhost:1?tls_ca=/nowhere"}, "tls_ca"},
		"a host that does not exist":   {engine.Options{URL: "http://no-such-host.invalid:8123"}, "--clickhouse"},
	}
	if os.Geteuid() == 0 {
		foreign := t.TempDir()
		if err := os.Mkdir(filepath.Join(foreign, "engine"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(filepath.Join(foreign, "engine"), 65534, 65534); err != nil {
			t.Fatal(err)
		}
		tests["of another user"] = struct {
			o    engine.Options
			want string
		}{engine.Options{DataDir: foreign}, "belongs to user 65534"}
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			e, err := engine.Open(t.Context(), tt.o)
			if err == nil {
				_ = e.Close()
				t.Fatal("no error")
			}
			t.Log(err)
			code := ratebatch.ExitCode(err)
			if strings.Contains(name, "host") && code == ratebatch.ExitTryAgain {
				return // a resolver that is away says something else than "no such host"
			}
			if code != ratebatch.ExitConfig || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("exit %d, want 2 and %q in: %v", code, tt.want, err)
			}
		})
	}
	t.Run("a server that is away", func(t *testing.T) {
		for _, address := range []string{"http://u:secret@127.0.0.1:1", "https://u:secret@127.0.0.1:1", "clickhouse://u:secret@127.0.0.1:1"} {
			_, err := engine.Open(t.Context(), engine.Options{URL: address})
			t.Log(err)
			if ratebatch.ExitCode(err) != ratebatch.ExitTryAgain || strings.Contains(err.Error(), "secret") {
				t.Errorf("exit %d: %v", ratebatch.ExitCode(err), err)
			}
		}
	})
	t.Run("a wrong password", func(t *testing.T) {
		dir := t.TempDir()
		open(t, dir)
		u, err := url.Parse(endpointOf(dir).URL)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword("default", "topsecret")
		_, err = engine.Open(t.Context(), engine.Options{URL: u.String()})
		if ratebatch.ExitCode(err) != ratebatch.ExitConfig || strings.Contains(err.Error(), "topsecret") || !strings.Contains(err.Error(), "password") {
			t.Errorf("%v", err)
		}
	})
}

// A server by URL is what the embedded engine is to another process that has
// its URL and password.
func TestServerByURL(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	at := endpointOf(dir)
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte(at.Password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	e, err := engine.Open(t.Context(), engine.Options{URL: at.URL, PasswordFile: password, Database: "by_url", Create: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	if e.Embedded() || strings.Contains(e.Address(), at.Password) || e.Version() == "" || e.Database() != "by_url" {
		t.Errorf("%v %s %s %s", e.Embedded(), e.Address(), e.Version(), e.Database())
	}
	if err := ask(t, e); err != nil {
		t.Error(err)
	}
}

func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a small file system")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=24m"); err != nil {
		t.Skipf("mount: %v", err)
	}
	defer func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) }()
	e, err := engine.Open(t.Context(), engine.Options{DataDir: dir, Database: "d", Create: true})
	if err != nil {
		t.Fatal(err)
	}
	pid := endpointOf(dir).PID
	defer func() { _ = e.Close(); waitGone(t, pid) }()
	if err := e.Conn().Exec(t.Context(), "CREATE TABLE t (a UInt64, s String) ENGINE = MergeTree ORDER BY a"); err != nil {
		t.Fatal(err)
	}
	if err := e.Conn().Exec(t.Context(), "INSERT INTO t SELECT number, 'before' FROM numbers(1000)"); err != nil {
		t.Fatal(err)
	}
	err = e.Conn().Exec(t.Context(), "INSERT INTO t SELECT number, randomPrintableASCII(1000) FROM numbers(60000)")
	t.Log(err)
	if err == nil {
		t.Fatal("no error")
	}
	var n uint64
	if err := e.Conn().QueryRow(t.Context(), "SELECT count() FROM t").Scan(&n); err != nil || n != 1000 {
		t.Errorf("after the disk was full: %d rows, want the 1000 from before; %v", n, err)
	}
}
