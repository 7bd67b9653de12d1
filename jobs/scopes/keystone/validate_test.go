package keystone_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/jobs/scopes/keystone"
	"github.com/ratebatch/ratebatch/jobs/scopes/keystone/keystonetest"
)

var far = time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)

func TestWhomATokenIsOf(t *testing.T) {
	server := keystonetest.New(t, nil)
	server.Issue("member-of-pa", keystonetest.Issued{User: "ann", Project: "pa", Roles: []string{"member", "reader"}, Expires: far})
	server.Issue("admin", keystonetest.Issued{User: "root", Project: "admin-project", Roles: []string{"reader", "admin"}, Expires: far})
	server.Issue("almost-admin", keystonetest.Issued{User: "eve", Project: "pb", Roles: []string{"Admin", "admins"}, Expires: far})
	server.Issue("unscoped", keystonetest.Issued{User: "bob", Expires: far})
	v := &keystone.Validator{Fetcher: fetcher(server, nil), Now: func() time.Time { return time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC) }}
	for token, want := range map[string]keystone.Subject{
		"member-of-pa": {User: "ann", Project: "pa"},
		"admin":        {User: "root", Project: "admin-project", Admin: true},
		"almost-admin": {User: "eve", Project: "pb"},
		"unscoped":     {User: "bob"},
	} {
		if got, err := v.Validate(t.Context(), token); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", token, got, err, want)
		}
	}
	for _, token := range []string{"nobody's", strings.Repeat("x", 4000)} {
		if got, err := v.Validate(t.Context(), token); !errors.Is(err, keystone.ErrInvalid) || got != (keystone.Subject{}) {
			t.Errorf("%.10s: %+v, %v, want ErrInvalid", token, got, err)
		}
	}
}

// Keystone is asked once a minute about a token, and at once when the token has
// ended; a token that it does not know is asked about each time.
func TestHowLongAnAnswerIsBelieved(t *testing.T) {
	server := keystonetest.New(t, nil)
	now := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	v := &keystone.Validator{Fetcher: fetcher(server, nil), Now: func() time.Time { return now }}
	server.Issue("long", keystonetest.Issued{User: "ann", Project: "pa", Expires: far})
	server.Issue("short", keystonetest.Issued{User: "ann", Project: "pa", Expires: now.Add(20 * time.Second)})
	check := func(token string, valid bool, asked int64) {
		t.Helper()
		before := server.Validations.Load()
		_, err := v.Validate(t.Context(), token)
		if n := server.Validations.Load() - before; (err == nil) != valid || err != nil && !errors.Is(err, keystone.ErrInvalid) || n != asked {
			t.Errorf("%s at %s: %v, Keystone was asked %d times, want valid %v and %d", token, now.Format(time.TimeOnly), err, n, valid, asked)
		}
	}
	check("long", true, 1)
	check("short", true, 1)
	server.Revoke("long")
	server.Revoke("short")
	now = now.Add(19 * time.Second)
	check("long", true, 0)
	check("short", true, 0)
	now = now.Add(time.Second)
	check("short", false, 1)
	check("short", false, 1)
	now = now.Add(39 * time.Second)
	check("long", true, 0)
	now = now.Add(time.Second)
	check("long", false, 1)
}

// The service user's own token expires; it logs in again and asks once more.
func TestTheServiceUserLogsInAgain(t *testing.T) {
	server := keystonetest.New(t, nil)
	v := &keystone.Validator{Fetcher: fetcher(server, nil), Now: func() time.Time { return far.AddDate(-1, 0, 0) }}
	server.Issue("a", keystonetest.Issued{User: "ann", Project: "pa", Expires: far})
	server.Issue("b", keystonetest.Issued{User: "bob", Project: "pb", Expires: far})
	if _, err := v.Validate(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	server.ExpireService()
	if got, err := v.Validate(t.Context(), "b"); err != nil || got.Project != "pb" {
		t.Errorf("after the service user's token expired: %+v, %v", got, err)
	}
}

// A Keystone that cannot be asked is no refusal: the token may be good. The error
// shows no secret.
func TestAKeystoneThatIsAwayIsNoRefusal(t *testing.T) {
	server := keystonetest.New(t, nil)
	server.Issue("user-token-1", keystonetest.Issued{User: "ann", Project: "pa", Expires: far})
	now := func() time.Time { return time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC) }
	for name, v := range map[string]*keystone.Validator{
		"wrong password of the service user": {Fetcher: fetcher(server, map[string]string{"OS_PASSWORD": "wrong-secret"}), Now: now},
		"nobody listens":                     {Fetcher: fetcher(server, map[string]string{"OS_AUTH_URL": "http://127.0.0.1:1/v3"}), Now: now},
	} {
		if _, err := v.Validate(t.Context(), "user-token-1"); err == nil || errors.Is(err, keystone.ErrInvalid) || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "user-token-1") {
			t.Errorf("%s: %v", name, err)
		}
	}
	v := &keystone.Validator{Fetcher: fetcher(server, nil), Now: now}
	server.FailTokens.Store(true)
	if _, err := v.Validate(t.Context(), "user-token-1"); err == nil || errors.Is(err, keystone.ErrInvalid) {
		t.Errorf("500: %v", err)
	}
	server.FailTokens.Store(false)
	if got, err := v.Validate(t.Context(), "user-token-1"); err != nil || got.Project != "pa" {
		t.Errorf("once it is back: %+v, %v", got, err)
	}
}
