package engine

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
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/engine/install"
	"github.com/ratebatch/ratebatch/ratebatch/engine/internal/child"
	"github.com/ratebatch/ratebatch/ratebatch/engine/internal/endpoint"
)

// How long to wait for the engine of a folder to start, or to leave so that a
// new one can start.
const startTimeout = 60 * time.Second

// embedded is this process's place among the clients of an embedded engine.
type embedded struct {
	folder   folder
	endpoint *endpointFile

	transport *http.Transport
	stop      context.CancelFunc
	lost      chan struct{} // closed when the engine is gone or was left
	left      chan struct{} // closed by leave
}

var errLeaving = errors.New("the engine is leaving")

func openEmbedded(ctx context.Context, o Options) (*Engine, error) {
	if o.Database == "default" || o.Database == "system" {
		return nil, &ratebatch.ConfigError{Err: fmt.Errorf("database %s: the embedded engine keeps it for itself", o.Database), Hint: "use another one with --database"}
	}
	m, err := join(ctx, o)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(m.endpoint.URL)
	if err != nil {
		m.leave()
		return nil, fmt.Errorf("%s: %w", m.folder.endpoint(), err)
	}
	c := &clickhouse.Options{
		Protocol:     clickhouse.HTTP,
		Addr:         []string{u.Host},
		Auth:         clickhouse.Auth{Database: o.Database, Username: m.endpoint.User, Password: m.endpoint.Password},
		HTTPProxyURL: nil,
	}
	common(o, c)
	e := &Engine{options: c, address: "the embedded engine in " + filepath.Dir(string(m.folder)), embedded: m}
	if err := e.connect(ctx, o); err != nil {
		m.leave()
		return nil, m.explain(err)
	}
	return e, nil
}

// join becomes a client of the folder's engine, starting it if none is there.
// Commands that start in the same instant take turns, so one engine starts.
func join(ctx context.Context, o Options) (*embedded, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, &ratebatch.TryAgainError{
		Err: fmt.Errorf("the embedded engine in %s neither starts nor leaves within %s", o.DataDir, startTimeout), Hint: "see engine/log there",
	})
	defer cancel()
	f, err := openFolder(o.DataDir)
	if err != nil {
		return nil, err
	}
	turn, err := waitLock(ctx, f.starting())
	if err != nil {
		return nil, err
	}
	defer func() { _ = turn.Close() }()
	lockedSince := time.Now() //nolint:forbidigo // a timeout
	for {
		locked, pid, err := isLocked(f.lock())
		if err != nil {
			return nil, err
		}
		if !locked {
			if err := start(ctx, f, o); err != nil {
				return nil, err
			}
		}
		e, err := f.readEndpoint()
		if err == nil {
			var m *embedded
			if m, err = hold(ctx, f, e); err == nil {
				if locked {
					o.Log.Debug("joined the embedded engine", "pid", e.PID, "data", o.DataDir)
				}
				return m, nil
			}
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		// An engine that is just coming or going: its lock decides.
		if errors.Is(err, errLeaving) || !locked {
			lockedSince = time.Now() //nolint:forbidigo // a timeout
		}
		if time.Since(lockedSince) > 15*time.Second || locked && isForeign(pid) {
			return nil, &ratebatch.ConfigError{
				Err:  fmt.Errorf("data folder %s is in use by process %s, which is no embedded engine (%w)", o.DataDir, pid, err),
				Hint: "stop that process, or name another folder with --data",
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// start spawns the engine and waits until it answers. The caller holds the
// starting lock.
func start(ctx context.Context, f folder, o Options) error {
	lib, err := install.Find(o.Lib)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program to start the embedded engine: %w", err)
	}
	if err := os.Remove(f.endpoint()); err != nil && !isNotExist(err) {
		return err
	}
	log, err := openLog(f.log())
	if err != nil {
		return &ratebatch.ConfigError{Err: fmt.Errorf("the engine's log: %w", err)}
	}
	defer func() { _ = log.Close() }()
	ready, readyChild, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = ready.Close() }()
	config, err := json.Marshal(childConfig{Folder: string(f), Lib: lib, Port: o.Port, Finish: o.Finish})
	if err != nil {
		return err
	}
	cmd := exec.Command(self) //nolint:gosec // this very program; not tied to ctx because other commands may join
	cmd.Args = []string{filepath.Base(self), childTitle + filepath.Dir(string(f)) + ")"}
	cmd.Env = append(os.Environ(), envChild+"="+string(config))
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{readyChild}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C is for the command, not for the engine others use
	begun := time.Now()                                  //nolint:forbidigo // for the log
	if err := cmd.Start(); err != nil {
		return errors.Join(fmt.Errorf("start the embedded engine: %w", err), readyChild.Close())
	}
	child.Reap(cmd)
	if err := readyChild.Close(); err != nil {
		return err
	}
	// The engine writes one line; the end of the pipe without a line means
	// that it died.
	stop := context.AfterFunc(ctx, func() { _ = ready.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	line, err := bufio.NewReader(ready).ReadString('\n')
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return &ratebatch.TryAgainError{
			Err:  fmt.Errorf("the embedded engine in %s ended while it started: %s", o.DataDir, lastLine(f.log())),
			Hint: "see " + f.log(),
		}
	}
	var answer childAnswer
	if err := json.Unmarshal([]byte(line), &answer); err != nil {
		return fmt.Errorf("the embedded engine answered %q: %w", line, err)
	}
	if answer.Error != "" {
		return &ratebatch.ConfigError{Err: fmt.Errorf("start the embedded engine in %s: %s", o.DataDir, answer.Error), Hint: answer.Hint}
	}
	o.Log.Debug("started the embedded engine", "pid", cmd.Process.Pid, "data", o.DataDir, "took", time.Since(begun).Round(time.Millisecond))
	return nil
}

// childTitle is what ps shows for the engine.
const childTitle = "(embedded engine of "

// isForeign says whether a living process is something else than an engine.
func isForeign(pid string) bool {
	if _, err := strconv.Atoi(pid); err != nil {
		return false
	}
	title, err := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
	return err == nil && len(title) > 0 && !strings.Contains(string(title), childTitle)
}

// openLog opens the log of the engine; a long one is set aside first.
func openLog(path string) (*os.File, error) {
	const long = 4 << 20
	if info, err := os.Stat(path); err == nil && info.Size() > long {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

func lastLine(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "it left no log"
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}

// hold opens the request that makes this process a client of the engine.
func hold(ctx context.Context, f folder, e *endpointFile) (*embedded, error) {
	m := &embedded{folder: f, endpoint: e, lost: make(chan struct{}), left: make(chan struct{}), transport: &http.Transport{}}
	held, stop := context.WithCancel(context.WithoutCancel(ctx))
	m.stop = stop
	r, err := http.NewRequestWithContext(held, http.MethodGet, e.URL+endpoint.HoldPath, http.NoBody)
	if err != nil {
		stop()
		return nil, err
	}
	r.SetBasicAuth(e.User, e.Password)
	undo := context.AfterFunc(ctx, stop)      // only for the time until the answer
	response, err := m.transport.RoundTrip(r) //nolint:bodyclose // the goroutine below closes it
	undo()
	if err != nil {
		stop()
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1000))
		_ = response.Body.Close()
		m.transport.CloseIdleConnections()
		stop()
		if response.StatusCode == http.StatusServiceUnavailable {
			return nil, errLeaving
		}
		return nil, fmt.Errorf("%s: %s", response.Status, strings.TrimSpace(string(text)))
	}
	go func() {
		defer close(m.lost)
		_, _ = io.Copy(io.Discard, response.Body) // it ends with the engine, or with leave
		_ = response.Body.Close()
		m.transport.CloseIdleConnections()
	}()
	return m, nil
}

// leave ends this process's part in the engine.
func (m *embedded) leave() {
	close(m.left)
	m.stop()
	<-m.lost
}

// ErrEngineGone says that the embedded engine ended under its client.
var ErrEngineGone = errors.New("the embedded engine ended unexpectedly")

// explain replaces an error by ErrEngineGone when the engine is gone. An error
// that the engine itself sent stays, except that it is leaving.
func (m *embedded) explain(err error) error {
	var again *ratebatch.TryAgainError
	if errors.As(err, &again) {
		return err
	}
	if codeOf(err) == endpoint.CodeLeaving {
		return &ratebatch.TryAgainError{Err: fmt.Errorf("the embedded engine was told to leave: %w", err), Hint: "run the command again"}
	}
	if !brokenOff(err) {
		return err
	}
	// The engine's connections break one after the other.
	select {
	case <-m.left:
		return err
	case <-m.lost:
	case <-time.After(2 * time.Second):
		return err
	}
	select {
	case <-m.left:
		return err
	default:
		return m.gone()
	}
}

func (m *embedded) gone() error {
	return &ratebatch.TryAgainError{
		Err:  fmt.Errorf("%w (process %d): what it acknowledged is stored, the statement at hand may be or not", ErrEngineGone, m.endpoint.PID),
		Hint: "run the command again; the engine's log is " + m.folder.log(),
	}
}

// brokenOff says whether an error is about the connection.
func brokenOff(err error) bool {
	var exception *clickhouse.Exception
	var operation *net.OpError
	switch {
	case errors.As(err, &exception), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return false
	case errors.As(err, &operation), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return true
	}
	return strings.Contains(err.Error(), "EOF") // the client keeps the text only, in places
}
