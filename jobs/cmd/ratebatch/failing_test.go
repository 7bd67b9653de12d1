package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/ratebatch/ratebatch/ratebatch"
)

// A scope with a row that cannot be read holds up nobody: rate says which period of
// which scope and why, status shows it per scope, status --check rings until the
// row is corrected, and then the next rate has everything.
func TestAFailingScopeIsShownUntilItIsMended(t *testing.T) {
	b := newBilled(t)
	b.usage("beta", "2026-11-30 23:00:00", 1, "-1", "2026-11-28 01:00:00")
	b.usage("gamma", "2026-11-30 20:00:00", 6, "3600", "2026-11-28 00:00:00")
	b.usage("only", "2026-12-01 01:00:00", 1, "-1", "2026-11-28 00:00:00")
	args := []string{"--now", at, "--first-period", "usage"}
	b.fails(ratebatch.ExitHalted, "scope beta was left out from 2026-11-30T23:00:00Z on, all others are rated: metric", append([]string{"rate"}, args...)...)
	b.fails(ratebatch.ExitHalted, "scope only was left out from 2026-12-01T01:00:00Z on, all others are rated: metric", append([]string{"rate"}, args...)...)
	b.owe("alpha 6, beta 1.5, gamma 6")

	var x status
	if err := json.Unmarshal([]byte(b.must("status", "--output", "json", "--now", at)), &x); err != nil {
		t.Fatal(err)
	}
	for scope, want := range map[string]struct {
		lag   float64
		fails bool
	}{"alpha": {4 * 3600, false}, "beta": {7 * 3600, true}, "gamma": {4 * 3600, false}, "only": {5 * 3600, true}} {
		found := 0
		for _, s := range x.Scopes {
			if s.Scope == scope {
				found++
				if s.Lag != want.lag || strings.Contains(s.LastError, "covers less than no time") != want.fails {
					t.Errorf("scope %s: lag %v s and last error %q, want %+v", scope, s.Lag, s.LastError, want)
				}
			}
		}
		if found != 1 {
			t.Errorf("scope %s is there %d times", scope, found)
		}
	}
	if out := b.must("status", "--now", at); !strings.Contains(out, "scope beta fails from 2026-11-30T23:00:00Z on: metric") || strings.Count(out, "  fails ") != 2 {
		t.Errorf("status:\n%s", out)
	}
	b.fails(ratebatch.ExitHalted, "scope beta from 2026-11-30T23:00:00Z: metric", "status", "--check", "--now", at)

	b.sql("ALTER TABLE instance_metrics_hourly DELETE WHERE covered_seconds < 0 SETTINGS mutations_sync = 2")
	b.usage("beta", "2026-11-30 23:00:00", 1, "1800", "2026-11-28 01:00:00")
	b.must(append([]string{"rate"}, args...)...)
	b.owe("alpha 6, beta 3, gamma 6")
	b.must("status", "--check", "--now", at)
}
