package keystone_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ratebatch/ratebatch/jobs/scopes"
	"github.com/ratebatch/ratebatch/jobs/scopes/keystone"
	"github.com/ratebatch/ratebatch/jobs/scopes/keystone/keystonetest"
	"github.com/ratebatch/ratebatch/ratebatch"
)

func fetcher(server *keystonetest.Server, more map[string]string) *keystone.Fetcher {
	env := map[string]string{"OS_AUTH_URL": server.URL + "/v3", "OS_USERNAME": "rater", "OS_USER_DOMAIN_NAME": "Default", "OS_PASSWORD": keystonetest.Password,
		"OS_PROJECT_NAME": "admin", "OS_PROJECT_DOMAIN_NAME": "Default", "OS_REGION_NAME": "RegionOne"}
	for k, v := range more {
		env[k] = v
	}
	return &keystone.Fetcher{Getenv: func(name string) string { return env[name] }, Timeout: 5 * time.Second}
}

// Projects come page by page, each with its name and its domain's name.
func TestEveryPageOfProjectsIsRead(t *testing.T) {
	var list []keystonetest.Project
	var want []scopes.Scope
	for i := range 25 {
		list = append(list, keystonetest.Project{ID: fmt.Sprintf("p%02d", i), Name: fmt.Sprintf("Project %d", i), DomainID: []string{"default", "d2", "gone"}[i%3], Enabled: i%2 == 0})
		want = append(want, scopes.Scope{ID: list[i].ID, Name: list[i].Name, Domain: []string{"Default", "Département", "gone"}[i%3]})
	}
	list = append(list, keystonetest.Project{ID: "d2", Name: "Département", DomainID: "d2", IsDomain: true, Enabled: true})
	server := keystonetest.New(t, list)
	got, err := fetcher(server, nil).Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if n := server.Pages.Load(); n != 6 { // 26 projects and 5 a page
		t.Errorf("%d pages of projects were read, want 6", n)
	}
	// A versionless address is asked for its versions.
	if got, err := fetcher(server, map[string]string{"OS_AUTH_URL": server.URL}).Fetch(t.Context()); err != nil || len(got) != len(want) {
		t.Errorf("without /v3: %d projects, %v", len(got), err)
	}
}

func TestCredentialsFromFiles(t *testing.T) {
	server := keystonetest.New(t, []keystonetest.Project{{ID: "p", Name: "P", DomainID: "default"}})
	dir := t.TempDir()
	password := filepath.Join(dir, "password")
	if err := os.WriteFile(password, []byte(keystonetest.Password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := fetcher(server, map[string]string{"OS_PASSWORD": ""})
	f.PasswordFile = password
	if got, err := f.Fetch(t.Context()); err != nil || len(got) != 1 {
		t.Errorf("password file: %v, %v", got, err)
	}
	text := fmt.Sprintf("clouds:\n  ours:\n    region_name: RegionOne\n    auth:\n      auth_url: %s/v3\n      username: rater\n      user_domain_name: Default\n      project_name: admin\n      project_domain_name: Default\n      password: %s\n", server.URL, keystonetest.Password)
	if err := os.WriteFile(filepath.Join(dir, "clouds.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("OS_CLIENT_CONFIG_FILE", filepath.Join(dir, "clouds.yaml"))
	f = &keystone.Fetcher{Cloud: "ours", Timeout: 5 * time.Second}
	if got, err := f.Fetch(t.Context()); err != nil || len(got) != 1 {
		t.Errorf("clouds.yaml: %v, %v", got, err)
	}
}

// What goes wrong is said in one sentence without a secret, with the exit code
// of what helps: correct the credentials, or try again.
func TestFailures(t *testing.T) {
	for name, tt := range map[string]struct {
		env   map[string]string
		spoil func(s *keystonetest.Server)
		code  int
		want  string
	}{
		"a wrong password":            {env: map[string]string{"OS_PASSWORD": "wrong-secret"}, code: 2, want: "answered 401"},
		"no password":                 {env: map[string]string{"OS_PASSWORD": ""}, code: 2, want: "OS_PASSWORD is not set"},
		"no address":                  {env: map[string]string{"OS_AUTH_URL": ""}, code: 2, want: "OS_AUTH_URL is not set"},
		"a region that is not there":  {env: map[string]string{"OS_REGION_NAME": "Mars"}, code: 2, want: "OS_REGION_NAME"},
		"nobody listens":              {env: map[string]string{"OS_AUTH_URL": "http://127.0.0.1:1/v3"}, code: 75, want: "connection refused"},
		"500 in the middle of a list": {spoil: func(s *keystonetest.Server) { s.FailPage.Store(3) }, code: 75, want: "answered 500"},
		"an answer that never comes":  {spoil: func(s *keystonetest.Server) { s.HangPage.Store(2) }, code: 75, want: "no answer within 300ms"},
		"a user who may not list":     {spoil: func(s *keystonetest.Server) { s.Forbid.Store(true) }, code: 2, want: "OS_SYSTEM_SCOPE=all"},
		"an answer that is not JSON":  {spoil: func(s *keystonetest.Server) { s.Garbage.Store(true) }, code: 75, want: "keystone"},
	} {
		t.Run(name, func(t *testing.T) {
			var list []keystonetest.Project
			for i := range 20 {
				list = append(list, keystonetest.Project{ID: fmt.Sprint(i), Name: "x", DomainID: "default"})
			}
			server := keystonetest.New(t, list)
			if tt.spoil != nil {
				tt.spoil(server)
			}
			f := fetcher(server, tt.env)
			f.Timeout = 300 * time.Millisecond
			got, err := f.Fetch(t.Context())
			if code := ratebatch.ExitCode(err); code != tt.code || err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("exit %d, %v: want %d with %q", code, err, tt.code, tt.want)
			}
			if len(got) != 0 {
				t.Errorf("%d projects of a list that broke", len(got))
			}
			for _, secret := range []string{"wrong-secret", keystonetest.Password, keystonetest.Token} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("the error shows a secret: %v", err)
				}
			}
		})
	}
}

// A user who may list projects but not domains sees the domains' ids.
func TestWithoutDomainsTheirIDsShow(t *testing.T) {
	server := keystonetest.New(t, []keystonetest.Project{{ID: "p", Name: "P", DomainID: "default"}})
	server.ForbidDomains.Store(true)
	got, err := fetcher(server, nil).Fetch(t.Context())
	if err != nil || len(got) != 1 || got[0].Domain != "default" {
		t.Errorf("%v, %v", got, err)
	}
}
