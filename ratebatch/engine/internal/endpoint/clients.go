package endpoint

import (
	"encoding/json"
	"net/http"
	"runtime"
	"sync"
	"time"
)

// clients counts who is there. A client holds one request open for as long as
// it lives; when it dies in whatever way, the kernel closes the connection, so
// no engine outlives its clients.
type clients struct {
	mu      sync.Mutex
	count   int
	changed chan struct{} // closed and replaced at each change
	closed  bool
	gone    chan struct{} // closed when the engine leaves
}

func newClients() *clients {
	return &clients{changed: make(chan struct{}), gone: make(chan struct{})}
}

func (c *clients) add(n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n > 0 && c.closed {
		return false
	}
	c.count += n
	close(c.changed)
	c.changed = make(chan struct{})
	return true
}

// hold answers a client's request to stay, and does not end before the client
// goes or the engine leaves.
func (s *Server) hold(w http.ResponseWriter, r *http.Request) {
	if err := s.authenticate(r); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	if !s.clients.add(1) {
		http.Error(w, "the engine is leaving", http.StatusServiceUnavailable)
		return
	}
	defer s.clients.add(-1)
	w.Header().Set("X-ClickHouse-Version", s.version)
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	select {
	case <-r.Context().Done():
	case <-s.clients.gone:
	}
}

// WaitUnused returns when no client has been there for the grace, or none came
// within first. From then on no client is let in.
func (s *Server) WaitUnused(stop <-chan struct{}, first, grace time.Duration) {
	c := s.clients
	wait := first
	for {
		c.mu.Lock()
		changed, count := c.changed, c.count
		c.mu.Unlock()
		var timer <-chan time.Time
		if count == 0 {
			timer = time.After(wait)
		} else {
			wait = grace
		}
		select {
		case <-changed:
		case <-stop:
			c.mu.Lock()
			c.closed = true
			c.mu.Unlock()
			return
		case <-timer:
			c.mu.Lock()
			if c.count == 0 {
				c.closed = true
				c.mu.Unlock()
				return
			}
			c.mu.Unlock()
		}
	}
}

// Dismiss tells the clients that the engine leaves.
func (s *Server) Dismiss() { close(s.clients.gone) }

func (s *Server) status(w http.ResponseWriter, r *http.Request) {
	if err := s.authenticate(r); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	s.clients.mu.Lock()
	held := s.clients.count
	s.clients.mu.Unlock()
	s.mu.Lock()
	statements, sessions := len(s.running), len(s.sessions)
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"version": s.version, "clients": held, "statements": statements, "sessions": sessions, "goroutines": runtime.NumGoroutine(),
	})
}
