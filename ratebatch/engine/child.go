package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch/engine/internal/chdb"
	"github.com/ratebatch/ratebatch/ratebatch/engine/internal/endpoint"
)

// envChild makes this program serve as the embedded engine; see start.
const envChild = "RATEBATCH_ENGINE_CHILD"

// envConfig names a ClickHouse configuration file for the engine. It is there for
// tests: the engine's only user can be given a deployment's grants and settings
// by it, so that a statement that a server would refuse is refused here.
const envConfig = "RATEBATCH_ENGINE_CONFIG"

const (
	firstClient = 10 * time.Second       // how long the engine waits for its first client
	lastClient  = 300 * time.Millisecond // how long it stays after its last one, for a script's next command
	// finishTime is what running statements get after SIGTERM; systemd sends
	// SIGKILL after 90 s and Kubernetes after 30 s.
	finishTime = 10 * time.Second
)

// childConfig comes in the environment; it holds no secret.
type childConfig struct {
	Folder string        `json:"folder"`
	Lib    string        `json:"lib"`
	Port   int           `json:"port,omitempty"`
	Finish time.Duration `json:"finish,omitempty"`
}

// childAnswer goes over the pipe to the starting command.
type childAnswer struct {
	Error string `json:"error,omitempty"`
	Hint  string `json:"hint,omitempty"`
}

// ServeIfChild turns this process into the embedded engine, and does not
// return, if it was started as one. Call it first in main and in TestMain.
func ServeIfChild() {
	text := os.Getenv(envChild)
	if text == "" {
		return
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := serveChild(text, log); err != nil {
		log.Error("the embedded engine ends", "err", err)
		os.Exit(1) //nolint:forbidigo // this process is the engine; main never runs in it
	}
	os.Exit(0) //nolint:forbidigo // as above
}

func serveChild(text string, log *slog.Logger) error {
	if err := os.Unsetenv(envChild); err != nil {
		return err
	}
	answer := os.NewFile(3, "answer")
	tell := func(err error, hint string) error {
		a := childAnswer{Hint: hint}
		if err != nil {
			a.Error = err.Error()
		}
		line, _ := json.Marshal(a)
		_, writeErr := answer.Write(append(line, '\n'))
		_ = answer.Close()
		if err == nil && writeErr != nil {
			log.Warn("the command that started the engine is gone") // WaitUnused ends the engine
		}
		return err
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	signal.Ignore(syscall.SIGPIPE, syscall.SIGHUP)

	var config childConfig
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		return tell(err, "")
	}
	// The library leaves the modes of its files to the umask, and whoever started
	// the first command decided on that.
	syscall.Umask(0o077)
	f := folder(config.Folder)
	lock, err := tryLock(f.lock())
	if errors.Is(err, errLocked) {
		return tell(fmt.Errorf("another process uses %s", filepath.Dir(config.Folder)), "stop it, or name another folder with --data")
	}
	if err != nil {
		return tell(err, "")
	}
	defer func() { _ = lock.Close() }()
	if err := chdb.Load(config.Lib); err != nil {
		return tell(err, loadHint(err))
	}
	if err := os.MkdirAll(f.store(), 0o700); err != nil {
		return tell(err, "")
	}
	if err := forgetDefaultDatabase(f.store()); err != nil {
		return tell(err, "")
	}
	e := &endpointFile{User: "default", Password: rand.Text(), Access: rand.Text(), PID: os.Getpid(), Started: time.Now().UTC()} //nolint:forbidigo // for a person who reads the file
	args := []string{"--path=" + f.store()}
	if file := os.Getenv(envConfig); file != "" {
		args = append(args, "--config-file="+file)
	}
	server, err := endpoint.New(endpoint.Options{
		Args: args, User: e.User, Password: e.Password, Access: e.Access, Log: log,
	})
	if err != nil {
		return tell(fmt.Errorf("%w (%s)", err, lastLine(f.log())), "see "+f.log())
	}
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(config.Port)))
	if err != nil {
		return tell(err, "choose another --port")
	}
	e.URL, e.Version = "http://"+listener.Addr().String(), server.Version()
	web := &http.Server{Handler: server, ReadHeaderTimeout: 30 * time.Second, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}
	served := make(chan error, 1)
	go func() { served <- web.Serve(listener) }()
	if err := f.writeEndpoint(e); err != nil {
		return tell(err, "")
	}
	_ = tell(nil, "")
	log.Info("the embedded engine serves", "url", e.URL, "pid", e.PID, "version", e.Version)

	stop := make(chan struct{})
	reason := "its last client left"
	go func() {
		s := <-signals
		reason = s.String()
		close(stop)
	}()
	server.WaitUnused(stop, firstClient, lastClient)
	// From here no client is let in; those that come wait for the lock.
	if err := os.Remove(f.endpoint()); err != nil && !isNotExist(err) {
		log.Warn("remove the endpoint file", "err", err)
	}
	grace, cancel := context.WithTimeout(context.Background(), cmp.Or(config.Finish, finishTime)) //nolint:forbidigo // this process has no caller
	defer cancel()
	go func() { // a second signal cuts the grace short
		<-signals
		cancel()
	}()
	select {
	case <-stop:
		log.Info("the embedded engine leaves", "reason", reason)
	default:
		// Statements whose clients are gone have nobody to finish for.
		cancel()
	}
	server.Leave(grace)
	server.Dismiss()
	// The last answers are still on their way: Close would cut them.
	answers, enough := context.WithTimeout(context.Background(), 2*time.Second) //nolint:forbidigo // as above
	defer enough()
	if err := web.Shutdown(answers); err != nil {
		log.Warn("close the endpoint", "err", errors.Join(err, web.Close()))
	}
	<-served //nolint:errcheck // it ends because of Close
	chdb.Shutdown()
	return nil
}

// forgetDefaultDatabase removes the entry of the database "default" that an
// earlier run left (see endpoint.Server.prepare); it never holds a table.
func forgetDefaultDatabase(store string) error {
	err := os.Remove(filepath.Join(store, "metadata", "default.sql"))
	if err != nil && !isNotExist(err) {
		return err
	}
	return nil
}

func loadHint(error) string {
	return "run 'ratebatch engine install' again, or use a ClickHouse server with --clickhouse"
}
