// Package keystonetest is a Keystone over HTTP that answers as the real one
// does for what Ratebatch asks of it: versions, tokens with a catalog, domains
// and projects in pages. Its replies follow the Identity API v3 reference.
package keystonetest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Password is the one of user rater, Token what it gets for it.
const (
	Password = "open-sesame-7"
	Token    = "gAAAAAB-not-a-real-token"
	perPage  = 5
)

// Project is a row of GET /v3/projects.
type Project struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	DomainID string `json:"domain_id"`
	Enabled  bool   `json:"enabled"`
	IsDomain bool   `json:"is_domain"`
}

// Server is a running Keystone. Its fields break it.
type Server struct {
	*httptest.Server
	Pages         atomic.Int64 // of projects, read so far
	FailPage      atomic.Int64 // answers 500; 0: none
	HangPage      atomic.Int64 // never answers; 0: none
	Forbid        atomic.Bool  // 403 for projects
	ForbidDomains atomic.Bool
	Garbage       atomic.Bool
	FailTokens    atomic.Bool  // 500 for whoever validates a token
	Validations   atomic.Int64 // of tokens, so far

	projects []Project
	done     chan struct{}
	expired  atomic.Int64 // how often user rater's token has expired

	mu     sync.Mutex
	issued map[string]Issued
}

// Issued is a token that somebody else was given.
type Issued struct {
	User    string
	Project string // id; empty: without a project scope
	Roles   []string
	Expires time.Time
}

// Issue makes a token valid.
func (s *Server) Issue(token string, x Issued) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.issued[token] = x
}

// Revoke makes a token unknown, as it is once it has expired.
func (s *Server) Revoke(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.issued, token)
}

// ExpireService lets the token of user rater expire: it is refused until the user
// logs in again.
func (s *Server) ExpireService() { s.expired.Add(1) }

// serviceToken is the token of user rater that is valid now.
func (s *Server) serviceToken() string {
	if n := s.expired.Load(); n > 0 {
		return fmt.Sprintf("%s-%d", Token, n)
	}
	return Token
}

// New starts one with these projects, in the domains default and d2.
func New(tb testing.TB, list []Project) *Server {
	tb.Helper()
	s := &Server{projects: list, done: make(chan struct{}), issued: map[string]Issued{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.versions)
	mux.HandleFunc("GET /v3/{$}", s.version)
	mux.HandleFunc("POST /v3/auth/tokens", s.tokens)
	mux.HandleFunc("GET /v3/auth/tokens", s.validate)
	mux.HandleFunc("GET /v3/domains", s.domains)
	mux.HandleFunc("GET /v3/projects", s.list)
	s.Server = httptest.NewServer(mux)
	tb.Cleanup(func() {
		close(s.done)
		s.Close()
	})
	return s
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // the client has gone
}

func fault(w http.ResponseWriter, code int, title string) {
	answer(w, code, map[string]any{"error": map[string]any{"code": code, "title": title, "message": title + ": the request you have made is refused."}})
}

func (s *Server) self() map[string]any {
	return map[string]any{"id": "v3.14", "status": "stable", "updated": "2020-04-07T00:00:00Z", "links": []any{map[string]string{"rel": "self", "href": s.URL + "/v3/"}},
		"media-types": []any{map[string]string{"base": "application/json", "type": "application/vnd.openstack.identity-v3+json"}}}
}

func (s *Server) versions(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusMultipleChoices, map[string]any{"versions": map[string]any{"values": []any{s.self()}}})
}

func (s *Server) version(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, map[string]any{"version": s.self()})
}

func (s *Server) tokens(w http.ResponseWriter, r *http.Request) {
	var request struct {
		Auth struct {
			Identity struct {
				Methods  []string
				Password struct {
					User struct {
						Name     string
						Password string
						Domain   struct{ ID, Name string }
					}
				}
			}
			Scope json.RawMessage
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		fault(w, http.StatusBadRequest, "Bad Request")
		return
	}
	user := request.Auth.Identity.Password.User
	if user.Name != "rater" || user.Password != Password || user.Domain.Name != "Default" && user.Domain.ID != "default" {
		fault(w, http.StatusUnauthorized, "Unauthorized")
		return
	}
	var endpoints []any
	for _, kind := range []string{"public", "internal", "admin"} {
		endpoints = append(endpoints, map[string]string{"id": kind, "interface": kind, "region": "RegionOne", "region_id": "RegionOne", "url": s.URL + "/v3/"})
	}
	w.Header().Set("X-Subject-Token", s.serviceToken())
	answer(w, http.StatusCreated, map[string]any{"token": map[string]any{
		"methods": request.Auth.Identity.Methods, "expires_at": "2099-01-01T00:00:00.000000Z", "issued_at": "2026-11-01T00:00:00.000000Z",
		"user":    map[string]any{"id": "u1", "name": "rater", "domain": map[string]string{"id": "default", "name": "Default"}},
		"catalog": []any{map[string]any{"id": "c1", "name": "keystone", "type": "identity", "endpoints": endpoints}},
	}})
}

func (s *Server) allowed(w http.ResponseWriter, r *http.Request) bool {
	if r.Header.Get("X-Auth-Token") == s.serviceToken() {
		return true
	}
	fault(w, http.StatusUnauthorized, "Unauthorized")
	return false
}

// validate says whom the token in X-Subject-Token is of; an unknown or expired
// one is not found.
func (s *Server) validate(w http.ResponseWriter, r *http.Request) {
	if !s.allowed(w, r) {
		return
	}
	s.Validations.Add(1)
	if s.FailTokens.Load() {
		fault(w, http.StatusInternalServerError, "Internal Server Error")
		return
	}
	token := r.Header.Get("X-Subject-Token")
	s.mu.Lock()
	x, ok := s.issued[token]
	s.mu.Unlock()
	if !ok {
		fault(w, http.StatusNotFound, "Not Found")
		return
	}
	body := map[string]any{"methods": []string{"password"}, "expires_at": x.Expires.UTC().Format("2006-01-02T15:04:05.000000Z"), "issued_at": "2026-11-01T00:00:00.000000Z", "audit_ids": []string{"a1"},
		"user": map[string]any{"id": "id-of-" + x.User, "name": x.User, "domain": map[string]string{"id": "default", "name": "Default"}}}
	if x.Project != "" {
		roles := []any{}
		for _, role := range x.Roles {
			roles = append(roles, map[string]string{"id": "id-of-" + role, "name": role})
		}
		body["project"] = map[string]any{"id": x.Project, "name": "name of " + x.Project, "domain": map[string]string{"id": "default", "name": "Default"}}
		body["roles"] = roles
	}
	w.Header().Set("X-Subject-Token", token)
	answer(w, http.StatusOK, map[string]any{"token": body})
}

func (s *Server) domains(w http.ResponseWriter, r *http.Request) {
	if !s.allowed(w, r) {
		return
	}
	if s.ForbidDomains.Load() {
		fault(w, http.StatusForbidden, "Forbidden")
		return
	}
	answer(w, http.StatusOK, map[string]any{"domains": []any{
		map[string]any{"id": "default", "name": "Default", "enabled": true, "links": map[string]string{"self": s.URL + "/v3/domains/default"}},
		map[string]any{"id": "d2", "name": "Département", "enabled": true, "links": map[string]string{"self": s.URL + "/v3/domains/d2"}},
	}, "links": map[string]any{"next": nil, "previous": nil, "self": s.URL + "/v3/domains"}})
}

func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	if !s.allowed(w, r) {
		return
	}
	if s.Forbid.Load() {
		fault(w, http.StatusForbidden, "Forbidden")
		return
	}
	from := 0
	if marker := r.URL.Query().Get("marker"); marker != "" {
		n, err := strconv.Atoi(marker)
		if err != nil || n > len(s.projects) {
			fault(w, http.StatusBadRequest, "Bad Request")
			return
		}
		from = n
	}
	page := s.Pages.Add(1)
	switch {
	case page == s.HangPage.Load():
		select {
		case <-r.Context().Done():
		case <-s.done:
		}
		return
	case page == s.FailPage.Load():
		fault(w, http.StatusInternalServerError, "Internal Server Error")
		return
	case s.Garbage.Load():
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, "<html>a proxy's page</html>")
		return
	}
	to := min(from+perPage, len(s.projects))
	links := map[string]any{"next": nil, "previous": nil, "self": s.URL + r.URL.String()}
	if to < len(s.projects) {
		links["next"] = fmt.Sprintf("%s/v3/projects?marker=%d&limit=%d", s.URL, to, perPage)
	}
	answer(w, http.StatusOK, map[string]any{"projects": append([]Project{}, s.projects[from:to]...), "links": links})
}
