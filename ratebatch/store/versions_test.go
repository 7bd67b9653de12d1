package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

// A plan of 100,000 values has megabytes, more than the address of a request may.
func TestLargeVersionsAreStoredWhole(t *testing.T) {
	s := storetest.Fresh(t)
	body := strings.Repeat("- {value: \"it's 100 % \\\\ ü\", cost: \"0.01\"}\n", 150_000)
	for i, kind := range []store.VersionKind{store.PlanVersions, store.PlanVersions, store.MetricVersions} {
		v, err := s.AddVersion(t.Context(), kind, store.Version{Digest: strings.Repeat("a", i+1), Body: body, Currency: "EUR", Author: "a", Note: "n",
			ValidFrom: time.Date(2026, 11, 1+i, 0, 0, 0, 0, time.UTC)})
		if err != nil {
			t.Fatal(err)
		}
		if want := []uint32{1, 2, 1}[i]; v.Version != want || v.Body != body || !v.ValidTo.Equal(store.OpenEnd) || v.Currency != "EUR" || v.Author != "a" || v.Note != "n" || v.AppliedAt.IsZero() {
			t.Errorf("version %d of %s, %d bytes, until %s, by %q", v.Version, kind, len(v.Body), v.ValidTo, v.Author)
		}
	}
}
