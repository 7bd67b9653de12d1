package main

import (
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// A scope is as far as its newest line, in whichever currency: rows of one that
// it had before are not behind.
func TestLagIsTheScopesNotTheCurrencys(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	got := scopeStatuses([]store.ScopeStatus{
		{Scope: "a", Currency: "EUR", RatedUntil: now.AddDate(0, -5, 0)}, {Scope: "a", Currency: "USD", RatedUntil: now.Add(-2 * time.Hour)}, {Scope: "b", Currency: "EUR", RatedUntil: now.Add(-3 * time.Hour)},
	}, []store.ScopeFailure{{Scope: "c", Begin: now.Add(-4 * time.Hour), Error: "x"}}, now)
	for i, want := range []float64{2, 2, 3, 4} {
		if len(got) != 4 || got[i].Lag != want*3600 {
			t.Errorf("%d of %d: %+v, want %g h behind", i, len(got), got[i], want)
		}
	}
}
