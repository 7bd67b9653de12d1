package store_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// The digest of a line stands in every statement that reads money, since a
// statement is one file. One copy that differs would stop every reader.
func TestTheLineDigestIsTheSameEverywhere(t *testing.T) {
	const want = "cityHash64(region, metric, resource, attributes, part, end, unit, qty, price, rule, bucket)"
	formula := regexp.MustCompile(`cityHash64\([^()]*\bpart\b[^()]*\bprice\b[^()]*\)`)
	for _, name := range []string{"insert_pass_lines", "export_lines", "reconcile_lines", "line_totals", "export_check"} {
		if got := strings.ReplaceAll(formula.FindString(store.SQL(name)), "l.", ""); got != want {
			t.Errorf("%s: %q, want %s", name, got, want)
		}
	}
}
