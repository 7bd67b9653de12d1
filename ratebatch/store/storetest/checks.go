package storetest

import (
	"flag"
	"strconv"
	"sync"
	"testing"
)

// defaultChecks is how many cases rapid draws unless told.
const defaultChecks = 100

// asked says whether the command line names the number of cases. It is asked once,
// before the first test sets the flag: from then on the flag looks set for good.
var asked = sync.OnceValue(func() (set bool) {
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == "rapid.checks" })
	return set
})

// Checks has rapid draw n cases in this test, unless -rapid.checks says how many,
// and tells whether it does. Tests that call it do not run in parallel.
func Checks(tb testing.TB, n int) bool {
	tb.Helper()
	if asked() {
		return false
	}
	if err := flag.Set("rapid.checks", strconv.Itoa(n)); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := flag.Set("rapid.checks", strconv.Itoa(defaultChecks)); err != nil {
			tb.Error(err)
		}
	})
	return true
}
