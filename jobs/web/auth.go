package web

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch"
)

// Identity is who asks.
type Identity struct {
	Kind    string // none, token or proxy
	Name    string
	Project string // the only project it sees; empty: all
}

// Auth decides who asks.
type Auth struct {
	Tokens *Tokens // nil: none
	Proxy  *Proxy  // nil: none
}

// Required says whether someone has to show who they are.
func (a Auth) Required() bool { return a.Tokens != nil || a.Proxy != nil }

// Proxy believes a header of a reverse proxy that has authenticated the user.
type Proxy struct {
	From          []netip.Prefix // addresses of the proxy; others are not believed
	Header        string         // with the user's name
	ProjectHeader string         // with the only project the user sees; empty: users see all
}

// Token is one line of a tokens file.
type Token struct {
	Name    string
	Project string
	hash    [sha256.Size]byte
}

// NewToken makes a token and the line of the tokens file that admits it.
func NewToken(name, project string) (token, line string, err error) {
	if name == "" || strings.ContainsAny(name+project, " \t\r\n#") {
		return "", "", &ratebatch.ConfigError{Err: fmt.Errorf("token name %q, project %q", name, project), Hint: "use names without blanks and #"}
	}
	raw := make([]byte, 32)
	if _, err := rand.Read(raw); err != nil {
		return "", "", err
	}
	token = base64.RawURLEncoding.EncodeToString(raw)
	hash := sha256.Sum256([]byte(token))
	line = name + " sha256:" + hex.EncodeToString(hash[:])
	if project != "" {
		line += " project=" + project
	}
	return token, line, nil
}

// ParseTokens reads a tokens file: a token a line, as NAME sha256:HASH, followed
// by project=ID if it sees that project only. # begins a comment.
func ParseTokens(text []byte) ([]Token, error) {
	var tokens []Token
	var errs []error
	scanner := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; scanner.Scan(); n++ {
		line, _, _ := strings.Cut(scanner.Text(), "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		t, err := parseToken(fields)
		if err != nil {
			errs = append(errs, fmt.Errorf("line %d: %w", n, err))
			continue
		}
		tokens = append(tokens, t)
	}
	errs = append(errs, scanner.Err())
	if len(tokens) == 0 && errors.Join(errs...) == nil {
		errs = append(errs, errors.New("there is no token in it"))
	}
	return tokens, errors.Join(errs...)
}

func parseToken(fields []string) (Token, error) {
	t := Token{Name: fields[0]}
	if len(fields) < 2 || len(fields) > 3 {
		return t, errors.New("write NAME sha256:HASH, then project=ID if it sees that project only")
	}
	text, ok := strings.CutPrefix(fields[1], "sha256:")
	hash, err := hex.DecodeString(text)
	if !ok || err != nil || len(hash) != sha256.Size {
		return t, fmt.Errorf("token %s: the second word is not sha256: and 64 hexadecimal digits", t.Name)
	}
	copy(t.hash[:], hash)
	if len(fields) == 3 {
		// A mistyped restriction must not become none.
		if t.Project, ok = strings.CutPrefix(fields[2], "project="); !ok || t.Project == "" {
			return t, fmt.Errorf("token %s: the third word is not project=ID", t.Name)
		}
	}
	return t, nil
}

// Tokens are those of a file, which is read again when it changes, so that a
// token is revoked without a restart.
type Tokens struct {
	file string
	now  func() time.Time

	mu       sync.Mutex
	tokens   []Token
	modified time.Time
	size     int64
	looked   time.Time
}

// lookEvery is how often a tokens file is looked at.
const lookEvery = 2 * time.Second

// OpenTokens reads a tokens file.
func OpenTokens(file string, now func() time.Time) (*Tokens, error) {
	t := &Tokens{file: file, now: now}
	if err := t.load(); err != nil {
		return nil, &ratebatch.ConfigError{Err: fmt.Errorf("tokens file %s: %w", file, err), Hint: "make a token with 'ratebatch serve token --name NAME'"}
	}
	return t, nil
}

func (t *Tokens) load() error {
	info, err := os.Stat(t.file)
	if err != nil {
		return err
	}
	if info.ModTime().Equal(t.modified) && info.Size() == t.size {
		return nil
	}
	text, err := os.ReadFile(t.file)
	if err != nil {
		return err
	}
	tokens, err := ParseTokens(text)
	if err != nil {
		return err
	}
	t.tokens, t.modified, t.size = tokens, info.ModTime(), info.Size()
	return nil
}

// find looks for a token. A file that cannot be read any more admits nobody.
func (t *Tokens) find(token string) (Token, bool) {
	t.mu.Lock()
	if now := t.now(); now.Sub(t.looked) >= lookEvery {
		t.looked = now
		if t.load() != nil {
			t.tokens, t.modified = nil, time.Time{}
		}
	}
	tokens := t.tokens
	t.mu.Unlock()
	hash := sha256.Sum256([]byte(token))
	var found Token
	ok := false
	for _, x := range tokens {
		if subtle.ConstantTimeCompare(hash[:], x.hash[:]) == 1 {
			found, ok = x, true
		}
	}
	return found, ok
}

// Identify says who asks; false if nobody who may.
func (a Auth) Identify(r *http.Request) (Identity, bool) {
	if !a.Required() {
		return Identity{Kind: "none"}, true
	}
	if a.Tokens != nil {
		token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok {
			token = r.Header.Get("X-Auth-Token") // CloudKitty's clients
		}
		if token = strings.TrimSpace(token); token != "" {
			if t, ok := a.Tokens.find(token); ok {
				return Identity{"token", t.Name, t.Project}, true
			}
			return Identity{}, false
		}
	}
	if a.Proxy != nil {
		return a.Proxy.identify(r)
	}
	return Identity{}, false
}

func (p *Proxy) identify(r *http.Request) (Identity, bool) {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return Identity{}, false
	}
	trusted := false
	for _, prefix := range p.From {
		trusted = trusted || prefix.Contains(from.Addr().Unmap())
	}
	// A header that comes twice was put there by someone else as well.
	if !trusted || len(r.Header.Values(p.Header)) != 1 || r.Header.Get(p.Header) == "" {
		return Identity{}, false
	}
	id := Identity{Kind: "proxy", Name: r.Header.Get(p.Header)}
	if p.ProjectHeader != "" {
		if len(r.Header.Values(p.ProjectHeader)) != 1 || r.Header.Get(p.ProjectHeader) == "" {
			return Identity{}, false
		}
		// "*" is how the proxy says all: an empty header must not.
		if id.Project = r.Header.Get(p.ProjectHeader); id.Project == "*" {
			id.Project = ""
		}
	}
	return id, true
}
