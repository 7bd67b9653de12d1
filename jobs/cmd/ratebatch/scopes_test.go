package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ratebatch/ratebatch/jobs/scopes/keystone/keystonetest"
	"github.com/ratebatch/ratebatch/ratebatch"
)

// Names and domains of Keystone's projects show in scopes list and status; a
// Keystone that fails is reported, and the scopes known so far are rated.
func TestScopesFromKeystone(t *testing.T) {
	b := newBilled(t)
	server := keystonetest.New(t, []keystonetest.Project{{ID: "alpha", Name: "Web shop\x1b[2J", DomainID: "default", Enabled: true}, {ID: "beta", Name: "Tests", DomainID: "d2"}, {ID: "quiet", Name: "No usage yet", DomainID: "default"}})
	for name, value := range map[string]string{"OS_CLOUD": "", "OS_AUTH_URL": server.URL + "/v3", "OS_USERNAME": "rater", "OS_USER_DOMAIN_NAME": "Default", "OS_PASSWORD": keystonetest.Password, "OS_SYSTEM_SCOPE": "all"} {
		t.Setenv(name, value)
	}
	b.must("scopes", "disable", "beta", "--reason", "internal")
	b.rate("--scopes-from", "keystone")
	b.owe("alpha 6")
	list := b.must("scopes", "list")
	for _, want := range []string{`Web shop\x1b[2J`, "Tests", "Département", "disabled", "internal", "No usage yet"} {
		if !strings.Contains(list, want) {
			t.Errorf("scopes list lacks %q:\n%s", want, list)
		}
	}
	if strings.Contains(list, "\x1b") {
		t.Errorf("scopes list passes an escape sequence on: %q", list)
	}
	if out := b.must("scopes", "fetch", "keystone"); !strings.Contains(out, "3 scopes listed by keystone, 0 changed") {
		t.Errorf("second fetch: %s", out)
	}
	b.must("scopes", "enable", "beta", "--reason", "done")
	server.FailPage.Store(server.Pages.Load() + 1)
	code, _, stderr := cli(t, append(append([]string{}, b.flags...), "rate", "--now", at, "--scopes-from", "keystone")...)
	if code != 0 || !strings.Contains(stderr, "answered 500") {
		t.Errorf("a fetch that failed: exit %d, %s", code, stderr)
	}
	b.owe("alpha 6, beta 3")
	status := b.must("status", "--now", at)
	for _, want := range []string{"scopes keystone", "failed", "answered 500", "Tests"} {
		if !strings.Contains(status, want) {
			t.Errorf("status lacks %q:\n%s", want, status)
		}
	}
	b.fails(ratebatch.ExitHalted, "scopes keystone", "status", "--check", "--now", at)
	server.FailPage.Store(server.Pages.Load() + 1)
	b.fails(ratebatch.ExitTryAgain, "answered 500", "scopes", "fetch", "keystone")
	t.Setenv("OS_PASSWORD", "wrong-secret")
	if out := b.fails(ratebatch.ExitConfig, "answered 401", "scopes", "fetch", "keystone"); strings.Contains(out, "wrong-secret") {
		t.Errorf("the password shows: %s", out)
	}
	b.fails(ratebatch.ExitConfig, "no fetcher is called", "scopes", "fetch", "nova")
	b.must("scopes", "list")
}

// With scope_key another column names whose usage it is.
func TestScopeKeyIsConfigurable(t *testing.T) {
	b := newBilled(t)
	file := filepath.Join(t.TempDir(), "metrics.yaml")
	if err := os.WriteFile(file, []byte("scope_key: flavor_name\nmetrics:\n  instance:\n    unit: instance\n    table: instance_metrics\n    quantity: time\n    groupby: [project_id]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.must("metrics", "apply", file)
	if r := b.rate(); r.Scopes != 1 || r.Periods != 6 {
		t.Errorf("rated %+v, want one scope", r)
	}
	b.owe("m1 9")
	if list := b.must("scopes", "list"); !strings.Contains(list, "m1") || strings.Contains(list, "alpha") {
		t.Errorf("scopes list:\n%s", list)
	}
	b.must("scopes", "disable", "m1", "--reason", "x")
	b.must("scopes", "show", "m1")
}

func TestWatermarkOfAnUnknownRegion(t *testing.T) {
	b := newBilled(t)
	code, _, stderr := cli(t, append(append([]string{}, b.flags...), "watermark", "--region", "onne", "--until", "2026-12-01")...)
	if code != 0 || !strings.Contains(stderr, "region onne has no usage") {
		t.Errorf("exit %d, %s: want a warning", code, stderr)
	}
	_, _, stderr = cli(t, append(append([]string{}, b.flags...), "watermark", "--region", "one", "--until", "2026-12-01T02:00:00Z")...)
	if strings.Contains(stderr, "warning") {
		t.Errorf("a known region is warned of: %s", stderr)
	}
	b.must("watermark", "--region", "onne", "--unset")
	if out := b.must("watermark"); strings.Contains(out, "onne") {
		t.Errorf("the mistyped region is still there:\n%s", out)
	}
	b.must("watermark", "--region", "one", "--unset")
	if out := b.must("watermark"); !strings.Contains(out, "newest hour") || strings.Contains(out, "operator") {
		t.Errorf("the region does not follow its input again:\n%s", out)
	}
	b.fails(ratebatch.ExitConfig, "no watermark that was set", "watermark", "--region", "one", "--unset")
}

func TestASourceThatIsGoneIsForgotten(t *testing.T) {
	b := newBilled(t)
	b.sql("INSERT INTO ingest_progress (source, topic, partition, drained_at, regions) VALUES ('old/ingest', 'a', 0, '2026-12-01 00:00:00', ['one']), ('old/ingest', 'b', 0, '2026-11-30 00:00:00', ['one']), ('new/ingest', 'a', 0, '2026-12-01 02:00:00', ['one'])")
	b.fails(ratebatch.ExitConfig, "there are new/ingest (drained 2026-12-01T02:00:00Z last), old/ingest (drained 2026-11-30T00:00:00Z last)", "watermark", "--forget-source", "old")
	b.fails(ratebatch.ExitConfig, "--topic without --forget-source", "watermark", "--topic", "a")
	b.fails(ratebatch.ExitConfig, "without --region", "watermark", "--forget-source", "old/ingest", "--region", "one")
	code, _, stderr := cli(t, append(append([]string{}, b.flags...), "watermark", "--forget-source", "old/ingest", "--topic", "b")...)
	if code != 0 || !strings.Contains(stderr, "topic b of source old/ingest any more; it was drained 2026-11-30T00:00:00Z last") || strings.Contains(stderr, "topic a") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	b.must("watermark", "--forget-source", "old/ingest")
	b.fails(ratebatch.ExitConfig, "there are new/ingest (drained 2026-12-01T02:00:00Z last)", "watermark", "--forget-source", "old/ingest")
}

// A list of bare IDs says that there are scopes, and nothing about what they are called.
func TestABareListLeavesNamesAsTheyAre(t *testing.T) {
	b := newBilled(t)
	for _, step := range []struct{ list, says, scope string }{
		{"p1,Web shop,acme\n", "1 changed", `"name": "Web shop", "domain": "acme"`},
		{"p1\n", "0 changed", `"name": "Web shop", "domain": "acme"`},
		{"p1,Shop\n", "1 changed", `"name": "Shop", "domain": "acme"`},
		{"p1,,umbrella\n", "1 changed", `"name": "Shop", "domain": "umbrella"`},
	} {
		file := filepath.Join(t.TempDir(), "projects.csv")
		if err := os.WriteFile(file, []byte(step.list), 0o600); err != nil {
			t.Fatal(err)
		}
		if out := b.must("scopes", "load", file); !strings.Contains(out, step.says) {
			t.Errorf("%q: %s, want %s", step.list, out, step.says)
		}
		if out := strings.Join(strings.Fields(b.must("scopes", "show", "p1", "--output", "json")), " "); !strings.Contains(out, step.scope) {
			t.Errorf("after %q: %s, want %s", step.list, out, step.scope)
		}
	}
}
