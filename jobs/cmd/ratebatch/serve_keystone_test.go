package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/jobs/scopes/keystone/keystonetest"
)

// Keystone's tokens: an admin's sees everything, a member's its project, one
// without a project nothing; what Keystone does not know is 401, and a Keystone
// that is away is 503, never an open door.
func TestCloudKittyAsksKeystoneWhoseTokenItIs(t *testing.T) {
	flags, _, clock := kittyCloud(t)
	server := keystonetest.New(t, nil)
	end := clock().Add(48 * time.Hour)
	server.Issue("of-admin", keystonetest.Issued{User: "root", Project: "admin-project", Roles: []string{"admin"}, Expires: end})
	server.Issue("of-pa", keystonetest.Issued{User: "ann", Project: "pa", Roles: []string{"member"}, Expires: end})
	server.Issue("of-nobody", keystonetest.Issued{User: "bob", Expires: end})
	for name, value := range map[string]string{"OS_CLOUD": "", "OS_AUTH_URL": server.URL + "/v3", "OS_USERNAME": "rater", "OS_USER_DOMAIN_NAME": "Default", "OS_PASSWORD": keystonetest.Password, "OS_PROJECT_NAME": "admin", "OS_PROJECT_DOMAIN_NAME": "Default", "OS_REGION_NAME": "RegionOne"} {
		t.Setenv(name, value)
	}
	s := startServeAt(t, clock, append(flags, "--cloudkitty-api", "--keystone", "--cloudkitty-listen", "127.0.0.1:0")...)
	k := &served{url: s.kitty}
	ask := func(token, path string) (int, http.Header, string) {
		status, header, body := k.ask(t, http.MethodGet, path, "", "X-Auth-Token", token)
		return status, header, string(body)
	}
	const byProject = "/v2/summary?groupby=project_id&begin=2026-10-01T00:00:00Z&end=2026-11-01T00:00:00Z"
	if status, _, body := ask("of-admin", byProject); status != http.StatusOK || !strings.Contains(body, `"pa"`) || !strings.Contains(body, `"pb"`) {
		t.Errorf("admin: %d %s", status, body)
	}
	for _, path := range []string{byProject, byProject + "&filters=project_id:pb", "/v2/dataframes?begin=2026-10-01T00:00:00Z&end=2026-11-01T00:00:00Z&limit=1000", "/v1/report/summary?groupby=tenant_id"} {
		status, _, body := ask("of-pa", path)
		if status != http.StatusOK || strings.Contains(body, `"pb"`) {
			t.Errorf("member of pa, %s: %d %.500s", path, status, body)
		}
		if path == byProject && !strings.Contains(body, `"pa"`) {
			t.Errorf("member of pa does not see pa: %s", body)
		}
	}
	if status, _, body := ask("of-pa", "/v2/scope"); status != http.StatusForbidden {
		t.Errorf("member of pa lists scopes: %d %s", status, body)
	}
	for _, token := range []string{"", "of-nobody", "unknown"} {
		if status, header, body := ask(token, byProject); status != http.StatusUnauthorized || !strings.HasPrefix(header.Get("WWW-Authenticate"), "Keystone uri=") || strings.Contains(body, "pa") {
			t.Errorf("token %q: %d %s", token, status, body)
		}
	}
	// Our own tokens do not count here, and Keystone's not for the dashboard.
	if status, _, _ := k.ask(t, http.MethodGet, byProject, "", "Authorization", "Bearer of-admin"); status != http.StatusUnauthorized {
		t.Errorf("a bearer token beside Keystone: %d, want 401", status)
	}
	server.Close()
	server.Issue("late", keystonetest.Issued{User: "eve", Project: "pa", Roles: []string{"admin"}, Expires: end})
	if status, _, body := ask("late", byProject); status != http.StatusServiceUnavailable || !strings.Contains(body, "Keystone could not be asked") {
		t.Errorf("Keystone is away: %d %s, want 503", status, body)
	}
	if !strings.Contains(s.log.String(), "token was not validated") || strings.Contains(s.log.String(), "of-pa") {
		t.Errorf("the log says not why, or shows a token: %s", s.log.String())
	}
}
