package web

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"math"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"
)

// contentSecurity allows the application's own files and nothing inline.
const contentSecurity = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// secured sets what every answer bears, and refuses other names for loopback.
func (s *Server) secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", contentSecurity)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
		if s.TLS {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		h.Set("X-Request-Id", newRequestID())
		if !s.Auth.Required() && !IsLoopbackHost(r.Host) {
			s.fail(w, r, &apiError{status: http.StatusMisdirectedRequest, code: "forbidden", message: "without authentication this server answers to localhost only", hint: "open it as http://localhost:PORT, or start it with --tokens"})
			return
		}
		next.ServeHTTP(w, r)
	})
}

func newRequestID() string {
	raw := make([]byte, 8)
	if _, err := rand.Read(raw); err != nil {
		return "unknown"
	}
	return hex.EncodeToString(raw)
}

// IsLoopbackHost says whether a Host header names this machine only.
func IsLoopbackHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

// recovering turns a panic into an error of one request.
func (s *Server) recovering(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if p == http.ErrAbortHandler { //nolint:errorlint // that is the value net/http compares with
				panic(p)
			}
			s.Log.ErrorContext(r.Context(), "request panicked", "request_id", w.Header().Get("X-Request-Id"), "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
			s.fail(w, r, &apiError{status: http.StatusInternalServerError, code: "internal", message: "something went wrong", hint: "the server's log has it under the X-Request-Id of this answer"})
		}()
		next.ServeHTTP(w, r)
	})
}

// compressFrom is from how many bytes on an answer is worth compressing.
const compressFrom = 1024

var gzips = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

// send writes a JSON answer, with an ETag when it succeeded.
func (s *Server) send(w http.ResponseWriter, r *http.Request, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("Cache-Control", "private, no-cache")
	h.Set("Vary", "Accept-Encoding, Authorization")
	if status == http.StatusOK && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		sum := sha256.Sum256(body)
		tag := `W/"` + hex.EncodeToString(sum[:12]) + `"`
		h.Set("ETag", tag)
		if matches(r.Header.Get("If-None-Match"), tag) {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	writeBody(w, r, status, body)
}

func matches(header, tag string) bool {
	for part := range strings.SplitSeq(header, ",") {
		if part = strings.TrimSpace(part); part == tag || part == "*" {
			return true
		}
	}
	return false
}

func writeBody(w http.ResponseWriter, r *http.Request, status int, body []byte) {
	if len(body) >= compressFrom && acceptsGzip(r) {
		var packed bytes.Buffer
		z, _ := gzips.Get().(*gzip.Writer)
		z.Reset(&packed)
		_, err := z.Write(body)
		if closing := z.Close(); err == nil && closing == nil {
			body = packed.Bytes()
			w.Header().Set("Content-Encoding", "gzip")
		}
		gzips.Put(z)
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // nobody is left to tell
	}
}

func acceptsGzip(r *http.Request) bool {
	for part := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, q, _ := strings.Cut(strings.TrimSpace(part), ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") && strings.ReplaceAll(q, " ", "") != "q=0" {
			return true
		}
	}
	return false
}

// app answers with a file of the web application, or its first page: the
// application knows its own addresses. A point in one of them (the name of a
// host or an instance) does not make it a file: files that are missing are those
// below assets/ and those beside index.html.
func (s *Server) app(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "this address takes GET only", http.StatusMethodNotAllowed)
		return
	}
	if s.App == nil {
		http.NotFound(w, r)
		return
	}
	name := strings.TrimPrefix(path.Clean("/"+r.URL.Path), "/")
	body, err := fs.ReadFile(s.App, name)
	if err != nil || name == "" {
		if strings.HasPrefix(name, "assets/") || path.Ext(name) != "" && name != "index.html" && !strings.Contains(name, "/") {
			http.NotFound(w, r)
			return
		}
		name = "index.html"
		if body, err = fs.ReadFile(s.App, name); err != nil {
			http.NotFound(w, r)
			return
		}
	}
	h := w.Header()
	kind := mime.TypeByExtension(path.Ext(name))
	if kind == "" {
		kind = "application/octet-stream"
	}
	h.Set("Content-Type", kind)
	h.Set("Vary", "Accept-Encoding")
	h.Set("Cache-Control", "no-cache")
	if strings.HasPrefix(name, "assets/") { // their names hold a hash of what is in them
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	sum := sha256.Sum256(body)
	tag := `W/"` + hex.EncodeToString(sum[:12]) + `"`
	h.Set("ETag", tag)
	if matches(r.Header.Get("If-None-Match"), tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	if compressible(kind) {
		writeBody(w, r, http.StatusOK, body)
		return
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // nobody is left to tell
	}
}

func compressible(kind string) bool {
	for _, x := range []string{"text/", "javascript", "json", "svg", "xml"} {
		if strings.Contains(kind, x) {
			return true
		}
	}
	return false
}

// limiter is a token bucket per client.
type limiter struct {
	rate  float64
	burst float64

	mu      sync.Mutex
	clients map[string]*bucket
}

type bucket struct {
	left float64
	at   time.Time
}

// maxClients bounds the memory of a limiter.
const maxClients = 10_000

func newLimiter(l Limits) *limiter {
	return &limiter{rate: l.Rate, burst: float64(l.Burst), clients: map[string]*bucket{}}
}

// take gives 0 or how long the client has to wait.
func (l *limiter) take(client string, now time.Time) time.Duration {
	if l.rate <= 0 {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.clients[client]
	if b == nil {
		if len(l.clients) >= maxClients {
			for name, old := range l.clients { // those who are full again need not be remembered
				if now.Sub(old.at).Seconds()*l.rate+old.left >= l.burst {
					delete(l.clients, name)
				}
			}
			if len(l.clients) >= maxClients {
				return time.Second
			}
		}
		b = &bucket{left: l.burst, at: now}
		l.clients[client] = b
	}
	b.left = math.Min(l.burst, b.left+math.Max(0, now.Sub(b.at).Seconds())*l.rate)
	b.at = now
	if b.left < 1 {
		return time.Duration((1 - b.left) / l.rate * float64(time.Second))
	}
	b.left--
	return 0
}

func seconds(d time.Duration) string { return strconv.Itoa(int(math.Ceil(d.Seconds()))) }
