package buckettest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Versitygw is the S3 server that tests run: a real one over a folder.
const Versitygw = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"

// EnvRequireS3 makes tests fail, not skip, where the server cannot be had.
const EnvRequireS3 = "RATEBATCH_REQUIRE_S3"

// versitygw gives the path of the server's program and builds it the first
// time, which takes some minutes on two processors.
func versitygw() (string, error) {
	if path := os.Getenv("RATEBATCH_VERSITYGW"); path != "" {
		return path, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	_, version, _ := strings.Cut(Versitygw, "@")
	dir := filepath.Join(cache, "ratebatch", "versitygw-"+version)
	path := filepath.Join(dir, "versitygw")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	build := exec.Command("go", "install", Versitygw)
	build.Dir = dir // outside the module, so its versions do not matter
	build.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go install %s: %w: %s", Versitygw, err, bytes.TrimSpace(out))
	}
	return path, nil
}

// Server is a running S3 server with one empty bucket called "finance" and a
// proxy in front of it that can do what networks and stores do.
type Server struct {
	URL   string // of the server itself
	Proxy string // URL of the proxy
	Root  string // folder of the server

	mu    sync.Mutex
	fault Fault
}

// Fault decides what the proxy does with a request. It may answer by itself
// and return true, or return false to let the request through.
type Fault func(w http.ResponseWriter, r *http.Request, through http.Handler) bool

// SetFault changes what the proxy does; nil lets everything through.
func (s *Server) SetFault(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// Start runs the server until the test ends and sets the credentials in the
// environment, so the test cannot be parallel.
func Start(t *testing.T) *Server {
	t.Helper()
	program, err := versitygw()
	if err != nil {
		if os.Getenv(EnvRequireS3) != "" {
			t.Fatal(err)
		}
		t.Skipf("no S3 server to test against: %v", err)
	}
	s := &Server{Root: t.TempDir()}
	if err := os.Mkdir(filepath.Join(s.Root, "finance"), 0o755); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	s.URL = "http://" + address
	var log bytes.Buffer
	ctx, cancel := context.WithCancel(context.Background())
	server := exec.CommandContext(ctx, program, "--port", address, "--access", "test", "--secret", "testsecret", "--quiet", "posix", "--sidecar", t.TempDir(), s.Root)
	server.Stdout, server.Stderr = &log, &log
	server.Cancel = func() error { return server.Process.Signal(syscall.SIGTERM) }
	server.WaitDelay = 5 * time.Second
	if err := server.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = server.Wait() // ended by us
	})
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the S3 server does not answer: %v\n%s", err, log.String())
		}
	}
	target, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	through := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host = target.Scheme, target.Host
		r.Out.Host = r.In.Host // the Host header is signed
	}, ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		fault := s.fault
		s.mu.Unlock()
		if fault == nil || !fault(w, r, through) {
			through.ServeHTTP(w, r)
		}
	}))
	s.Proxy = proxy.URL
	t.Cleanup(func() {
		proxy.CloseClientConnections()
		proxy.Close()
		transport.CloseIdleConnections()
	})
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "testsecret")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_CONFIG_FILE", os.DevNull)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", os.DevNull)
	return s
}

// Operation names the S3 request, as far as faults care.
func Operation(r *http.Request) string {
	q := r.URL.Query()
	switch {
	case r.Method == http.MethodPost && q.Has("uploads"):
		return "create"
	case r.Method == http.MethodPost && q.Has("uploadId"):
		return "complete"
	case r.Method == http.MethodPut && q.Has("partNumber"):
		return "part " + q.Get("partNumber")
	case r.Method == http.MethodPut:
		return "put"
	case r.Method == http.MethodDelete && q.Has("uploadId"):
		return "abort"
	}
	return strings.ToLower(r.Method)
}

// Answer is a fault that answers the first times requests of an operation with
// an S3 error; times < 0 means always.
func Answer(operation string, status int, code string, times int) Fault {
	var mu sync.Mutex
	return func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if operation != "" && Operation(r) != operation {
			return false
		}
		mu.Lock()
		hit := times != 0
		if times > 0 {
			times--
		}
		mu.Unlock()
		if !hit {
			return false
		}
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>made by the test</Message></Error>`, code)
		return true
	}
}

// Cut is a fault that ends the connection after some bytes of the body, before
// anything reached the server.
func Cut(operation string, times int) Fault {
	return counted(operation, times, func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		_, _ = io.CopyN(io.Discard, r.Body, 100_000)
		hangUp(w)
	})
}

// LoseAnswer is a fault that lets the request through and ends the connection
// in place of the answer.
func LoseAnswer(operation string, times int) Fault {
	return counted(operation, times, func(w http.ResponseWriter, r *http.Request, through http.Handler) {
		through.ServeHTTP(httptest.NewRecorder(), r)
		hangUp(w)
	})
}

// Slow is a fault that answers late.
func Slow(operation string, by time.Duration, times int) Fault {
	return counted(operation, times, func(w http.ResponseWriter, r *http.Request, through http.Handler) {
		select {
		case <-time.After(by):
		case <-r.Context().Done():
			return
		}
		through.ServeHTTP(w, r)
	})
}

func counted(operation string, times int, do func(w http.ResponseWriter, r *http.Request, through http.Handler)) Fault {
	var mu sync.Mutex
	return func(w http.ResponseWriter, r *http.Request, through http.Handler) bool {
		if Operation(r) != operation {
			return false
		}
		mu.Lock()
		hit := times != 0
		if times > 0 {
			times--
		}
		mu.Unlock()
		if hit {
			do(w, r, through)
		}
		return hit
	}
}

func hangUp(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}
