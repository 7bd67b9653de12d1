package endpoint

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch/sqltext"
)

// begin registers a statement, unless the engine is leaving.
func (s *Server) begin(run *running) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leaving {
		return errorf(CodeLeaving, "ABORTED", "The embedded engine is leaving")
	}
	s.running[run] = struct{}{}
	return nil
}

// finish ends a statement and says whether a KILL was sent after it, or may
// still be: its session must not serve another one then.
func (s *Server) finish(run *running) (killed bool) {
	close(run.end)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, run)
	if s.leaving && len(s.running) == 0 {
		close(s.idle)
	}
	return run.killed
}

// endWithClient ends a statement whose client has gone away.
func (s *Server) endWithClient(ctx context.Context, run *running) {
	select {
	case <-run.end:
	case <-ctx.Done():
		s.endNow(run)
	}
}

// endNow kills a statement until it has ended: the engine does not see it for
// a moment after its start, so one KILL may come too early.
func (s *Server) endNow(run *running) {
	s.mu.Lock()
	_, runs := s.running[run]
	run.killed = true
	s.mu.Unlock()
	if !runs {
		return
	}
	for pause := time.Duration(0); ; pause = min(200*time.Millisecond, pause*2+5*time.Millisecond) {
		select {
		case <-run.end:
			return
		case <-time.After(pause):
		}
		s.control.Lock()
		err := s.root.Exec("KILL QUERY WHERE Settings['log_comment'] = " + sqltext.String(run.tag) + " ASYNC")
		s.control.Unlock()
		if err != nil {
			s.o.Log.Error("kill a statement", "query_id", run.id, "err", err)
		}
	}
}

// killsByID recognises KILL QUERY WHERE query_id = 'x' [SYNC|ASYNC|TEST], with
// a literal or a parameter: the engine does not know clients' ids.
func killsByID(s *statement, params map[string]string) (id string, ok bool) {
	w := s.words(6)
	if s.kind != "KILL" || len(w) < 6 || w[1] != "QUERY" || w[2] != "WHERE" || w[3] != "QUERY_ID" || w[4] != "=" {
		return "", false
	}
	value, rest := s.tokens[5], s.tokens[6:]
	switch {
	case value.kind == literal:
		id = unquote(s.text[value.start:value.end])
	case s.symbolAt(5, '{') && len(s.tokens) >= 10 && s.symbolAt(9, '}'):
		id, rest = params[s.name(s.tokens[6])], s.tokens[10:]
	default:
		return "", false
	}
	return id, len(rest) == 0 || len(rest) == 1 && slices.Contains([]string{"SYNC", "ASYNC"}, strings.ToUpper(s.name(rest[0])))
}

// kill ends the statements of a query_id and waits for them.
func (s *Server) kill(out *response, r *http.Request, id string) error {
	s.mu.Lock()
	var victims []*running
	for run := range s.running {
		if run.id == id {
			victims = append(victims, run)
		}
	}
	s.mu.Unlock()
	for _, run := range victims {
		go s.endNow(run)
	}
	for _, run := range victims {
		select {
		case <-run.end:
		case <-r.Context().Done():
			return errCancelled
		}
	}
	out.format = "TabSeparated"
	return out.finish()
}

// Leave takes no more statements, gives the running ones until ctx ends, then
// ends them, waits for that, and closes the engine.
func (s *Server) Leave(ctx context.Context) {
	s.mu.Lock()
	if !s.leaving {
		s.leaving = true
		if len(s.running) == 0 {
			close(s.idle)
		}
	}
	s.mu.Unlock()
	select {
	case <-s.idle:
	case <-ctx.Done():
		s.mu.Lock()
		for run := range s.running {
			go s.endNow(run)
		}
		s.mu.Unlock()
		// A statement that does not end is left to the process's end: parts
		// that it wrote only in part do not count.
		select {
		case <-s.idle:
		case <-time.After(10 * time.Second):
			s.o.Log.Warn("statements did not end when told to")
			return
		}
	}
	s.mu.Lock()
	for id, x := range s.sessions {
		x.conn.Close()
		delete(s.sessions, id)
	}
	for _, spare := range s.spare {
		for _, l := range spare {
			l.conn.Close()
		}
	}
	s.spare, s.spares = nil, 0
	s.mu.Unlock()
	s.control.Lock()
	s.root.Close()
	s.control.Unlock()
}
