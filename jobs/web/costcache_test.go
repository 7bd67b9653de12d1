package web

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

var (
	dayBegins = time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)
	testDay   = ratebatch.Period{Begin: dayBegins, End: dayBegins.Add(24 * time.Hour)}
)

// stateOf is a day whose hours have these commits.
func stateOf(base string, hours map[int]string) dayState {
	out := dayState{base: base, quarters: map[int64]string{}}
	for h, text := range hours {
		out.quarters[dayBegins.Add(time.Duration(h)*time.Hour).Unix()] = text
	}
	return out
}

func TestWhatIsReadAgainOfADay(t *testing.T) {
	before := stateOf("0 0", map[int]string{3: "a", 4: "b", 7: "c"})
	for name, tt := range map[string]struct {
		now  dayState
		want []int // begin and end hours
		all  bool
	}{
		"nothing, if nothing changed":                       {now: before},
		"an hour that was added at the end":                 {now: stateOf("0 0", map[int]string{3: "a", 4: "b", 7: "c", 8: "d"}), want: []int{8, 24}},
		"a hole that was filled, up to the next known hour": {now: stateOf("0 0", map[int]string{3: "a", 4: "b", 5: "x", 6: "y", 7: "c"}), want: []int{5, 7}},
		"two holes apart":                                   {now: stateOf("0 0", map[int]string{2: "x", 3: "a", 4: "b", 7: "c", 9: "d"}), want: []int{2, 3, 9, 24}},
		"all, if an hour was rated again":                   {now: stateOf("0 0", map[int]string{3: "a", 4: "B", 7: "c", 8: "d"}), all: true},
		"all, if an hour is gone":                           {now: stateOf("0 0", map[int]string{3: "a", 4: "b"}), all: true},
		"all, if an attempt was voided or the month closed": {now: stateOf("1 0", map[int]string{3: "a", 4: "b", 7: "c"}), all: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, grown := tt.now.added(before, testDay.End)
			if grown == tt.all {
				t.Fatalf("grown is %v", grown)
			}
			var hours []int
			for _, w := range got {
				hours = append(hours, int(w.Begin.Sub(dayBegins)/time.Hour), int(w.End.Sub(dayBegins)/time.Hour))
			}
			if diff := cmp.Diff(tt.want, hours); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// cell is a sum of one project in an hour.
func cell(scope, price string, lines uint64) costCell {
	return costCell{store.CostCell{Scope: scope, Metric: "m", Unit: "u", Lines: lines, Qty: decimal.NewFromInt(1), Price: decimal.RequireFromString(price)}, "EUR"}
}

// A day that grows hour by hour has the sums of one that is read at once, to the
// last digit; what was committed while it was read is never counted twice.
func TestADayThatGrowsHasTheSumsOfAllItsHours(t *testing.T) {
	committed := map[int][]costCell{}
	text := map[int]string{}
	var during func()
	var windows [][2]time.Time
	lines := func(_ context.Context, from, to time.Time) ([]costCell, map[string]time.Time, error) {
		if during != nil {
			during()
			during = nil
		}
		windows = append(windows, [2]time.Time{from, to})
		var out []costCell
		until := map[string]time.Time{}
		for h := range 24 {
			if at := dayBegins.Add(time.Duration(h) * time.Hour); !at.Before(from) && at.Before(to) && len(committed[h]) > 0 {
				out = mergeCells(out, committed[h])
				for _, x := range committed[h] {
					until[x.Scope] = at.Add(time.Hour)
				}
			}
		}
		return out, until, nil
	}
	look := func(context.Context) (dayState, error) { return stateOf("0 0", text), nil }
	commit := func(h int, cells ...costCell) { committed[h], text[h] = cells, time.Duration(h).String()+"!" }
	var d costDay
	read := func(want string, wantLines uint64, until int) {
		t.Helper()
		got, err := d.read(t.Context(), testDay, stateOf("0 0", text), lines, look)
		if err != nil {
			t.Fatal(err)
		}
		sum, n := decimal.Zero, uint64(0)
		for _, x := range got.cells {
			sum, n = sum.Add(x.Price), n+x.Lines
		}
		if sum.String() != want || n != wantLines || !ratedUntil([]daySums{got}, "").Equal(dayBegins.Add(time.Duration(until)*time.Hour)) {
			t.Errorf("%s of %d lines until %s, want %s of %d until hour %d", sum, n, got.until, want, wantLines, until)
		}
	}
	commit(0, cell("a", "0.1", 1), cell("b", "1", 2))
	read("1.1", 3, 1)
	commit(1, cell("a", "0.000000000000000001", 1), cell("c", "2", 1))
	read("3.100000000000000001", 5, 2)
	if got := windows[len(windows)-1][0]; !got.Equal(dayBegins.Add(time.Hour)) || len(windows) != 2 {
		t.Errorf("the second reading began at %s, want the hour that was added", got)
	}
	read("3.100000000000000001", 5, 2)
	if len(windows) != 2 {
		t.Error("a day that has not changed was read again")
	}
	// Hour 3 is committed while hour 2 is read: its lines are among those read.
	commit(2, cell("a", "10", 1))
	during = func() { commit(3, cell("a", "100", 1)) }
	read("113.100000000000000001", 7, 4)
	read("113.100000000000000001", 7, 4)
	commit(0, cell("b", "1", 2)) // rated again
	text[0] = "again"
	read("113.000000000000000001", 6, 4)
}

// Up to where a project is rated is its own, whoever is rated further.
func TestRatedUntilIsTheProjectsOwn(t *testing.T) {
	r := newRated(t)
	s := New(Options{})
	r.commit("behind", dayBegins.AddDate(0, 0, -27).Add(23*time.Hour), 0, "0") // the 2nd
	r.commit("behind", dayBegins.AddDate(0, 0, -27).Add(4*time.Hour), 0, "0")
	r.commit("ahead", dayBegins.AddDate(0, 0, -20), 0, "0") // the 9th
	r.commit("ahead", dayBegins.AddDate(0, 0, -27).Add(time.Hour), 0, "0")
	read := func(want map[string]string) {
		t.Helper()
		list, err := s.costs.read(t.Context(), r.Store, ratebatch.Calendar{}, dayBegins.AddDate(0, 0, -28), dayBegins.AddDate(0, 0, 2))
		if err != nil {
			t.Fatal(err)
		}
		for project, want := range want {
			if got := ratedUntil(list, project); got == nil || got.Format(time.RFC3339) != want {
				t.Errorf("%q is rated until %v, want %s", project, got, want)
			}
		}
		if got := ratedUntil(list, "nobody"); got != nil {
			t.Errorf("nobody is rated until %s", got)
		}
	}
	read(map[string]string{"behind": "2026-11-03T00:00:00Z", "ahead": "2026-11-09T01:00:00Z", "": "2026-11-09T01:00:00Z"})
	r.commit("ahead", dayBegins.AddDate(0, 0, -20).Add(time.Hour), 0, "0") // an hour that is added to its day
	r.commit("behind", dayBegins.AddDate(0, 0, -20).Add(2*time.Hour), 0, "0")
	read(map[string]string{"behind": "2026-11-09T03:00:00Z", "ahead": "2026-11-09T02:00:00Z", "": "2026-11-09T03:00:00Z"})
}
