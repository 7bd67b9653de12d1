package endpoint

import (
	"net/http"
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

// lease is a prepared session that one request uses.
type lease struct {
	conn    *chdb.Conn
	tag     string
	uses    int
	release func(clean bool)
}

const (
	maxSpares = 16   // prepared sessions kept for the next request
	maxUses   = 1000 // of one session, so that nothing can pile up in it
)

// leavesNoTrace says whether a session is the same after the statement.
func (req *request) leavesNoTrace() bool {
	switch req.kind {
	case "SELECT", "WITH", "FROM", "(", "INSERT":
		return len(req.tables) == 0
	}
	return false
}

// lease gives a request the session that it names, or one of its own. Opening
// and preparing a session takes most of the time of a small query, so clean
// ones are used again by requests that want the same.
func (s *Server) lease(q url.Values, r *http.Request, req *request, id string) (*lease, error) {
	p := s.preparation(r, req)
	if q.Get("session_id") != "" {
		conn, release, err := s.named(q)
		if err != nil {
			return nil, err
		}
		l := &lease{conn: conn, tag: p.comment + "query_id=" + id, release: func(bool) { release() }}
		return l, l.prepare(p, req)
	}
	s.mu.Lock()
	if spare := s.spare[p]; len(spare) > 0 && len(req.tables) == 0 {
		l := spare[len(spare)-1]
		s.spare[p] = spare[:len(spare)-1]
		s.spares--
		s.mu.Unlock()
		return l, nil
	}
	s.mu.Unlock()
	conn, err := chdb.Open(s.o.Args...)
	if err != nil {
		return nil, err
	}
	l := &lease{conn: conn, tag: p.comment + "session=" + randomHex(8)}
	l.release = func(clean bool) {
		l.uses++
		if !clean || l.uses >= maxUses || !s.keep(p, l) {
			conn.Close()
		}
	}
	return l, l.prepare(p, req)
}

func (l *lease) prepare(p preparation, req *request) error {
	err := p.apply(l.conn, l.tag)
	for _, t := range req.tables {
		if err == nil {
			err = t.create(l.conn)
		}
	}
	if err != nil {
		l.release(false)
	}
	return err
}

// keep puts a session aside, unless there are enough.
func (s *Server) keep(p preparation, l *lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leaving {
		return false
	}
	if s.spares >= maxSpares {
		// Make room: what nobody asked for may stay for good otherwise.
		for other, spare := range s.spare {
			if other != p && len(spare) > 0 {
				spare[0].conn.Close()
				s.spare[other] = spare[1:]
				s.spares--
				break
			}
		}
	}
	if s.spares >= maxSpares {
		return false
	}
	for other, spare := range s.spare {
		if len(spare) == 0 {
			delete(s.spare, other)
		}
	}
	s.spare[p] = append(s.spare[p], l)
	s.spares++
	return true
}

// named gives the session of session_id.
func (s *Server) named(q url.Values) (*chdb.Conn, func(), error) {
	id := q.Get("session_id")
	timeout := sessionTimeout
	if n, err := strconv.Atoi(q.Get("session_timeout")); err == nil && n > 0 {
		timeout = min(time.Duration(n)*time.Second, time.Hour)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropExpired(time.Now()) //nolint:forbidigo // a timeout
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
		x.expires = time.Now().Add(timeout) //nolint:forbidigo // a timeout
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
