package endpoint

import (
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch/engine/internal/chdb"
)

const (
	sessionTimeout = 60 * time.Second
	maxSessions    = 1000
)

// session is a named session: it keeps temporary tables and settings between
// requests, and runs one statement at a time.
type session struct {
	mu      sync.Mutex
	conn    *chdb.Conn
	expires time.Time
}

// open gives the session for a request: the named one, or a fresh one.
func (s *Server) open(q url.Values) (*chdb.Conn, func(), error) {
	id := q.Get("session_id")
	if id == "" {
		conn, err := chdb.Open(s.o.Args...)
		if err != nil {
			return nil, nil, err
		}
		return conn, conn.Close, nil
	}
	timeout := sessionTimeout
	if n, err := strconv.Atoi(q.Get("session_timeout")); err == nil && n > 0 {
		timeout = min(time.Duration(n)*time.Second, time.Hour)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropExpired(time.Now())
	x := s.sessions[id]
	if x == nil {
		if q.Get("session_check") == "1" {
			return nil, nil, errorf(372, "SESSION_NOT_FOUND", "Session %s not found", id)
		}
		if len(s.sessions) >= maxSessions {
			return nil, nil, errorf(202, "TOO_MANY_SIMULTANEOUS_QUERIES", "More than %d sessions are open", maxSessions)
		}
		conn, err := chdb.Open(s.o.Args...)
		if err != nil {
			return nil, nil, err
		}
		x = &session{conn: conn}
		s.sessions[id] = x
	}
	if !x.mu.TryLock() {
		return nil, nil, errorf(373, "SESSION_IS_LOCKED", "Session %s is locked by a concurrent client", id)
	}
	closing := q.Get("close_session") == "1"
	return x.conn, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		x.expires = time.Now().Add(timeout)
		x.mu.Unlock()
		if closing && s.sessions[id] == x {
			x.conn.Close()
			delete(s.sessions, id)
		}
	}, nil
}

// dropExpired closes the sessions that nobody used for long. It runs when a
// session is asked for, so there is no timer to stop; the caller holds s.mu.
func (s *Server) dropExpired(now time.Time) {
	for id, x := range s.sessions {
		if x.mu.TryLock() {
			if !x.expires.IsZero() && now.After(x.expires) {
				x.conn.Close()
				delete(s.sessions, id)
			}
			x.mu.Unlock()
		}
	}
}
