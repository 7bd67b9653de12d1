package rate

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

func at(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return t
}

func TestReadyUntil(t *testing.T) {
	for name, tt := range map[string]struct {
		now    string
		period time.Duration
		wait   int
		want   string
	}{
		"begin + wait periods must lie before now":       {"2026-11-29T12:00:01Z", time.Hour, 2, "2026-11-29T11:00:00Z"},
		"exactly at the edge the period is not ready":    {"2026-11-29T12:00:00Z", time.Hour, 2, "2026-11-29T10:00:00Z"},
		"just before the edge it is not ready":           {"2026-11-29T11:59:59Z", time.Hour, 2, "2026-11-29T10:00:00Z"},
		"without waiting the running period is not over": {"2026-11-29T12:00:00Z", time.Hour, 1, "2026-11-29T11:00:00Z"},
		"five-minute periods":                            {"2026-11-29T12:00:01Z", 5 * time.Minute, 2, "2026-11-29T11:55:00Z"},
		"days":                                           {"2026-11-29T12:00:00Z", 24 * time.Hour, 2, "2026-11-28T00:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ReadyUntil(at(tt.now), tt.period, tt.wait); !got.Equal(at(tt.want)) {
				t.Errorf("ReadyUntil = %s, want %s", got.Format(time.RFC3339), tt.want)
			}
		})
	}
}

// Recorded decisions of CloudKitty: with a last period known, ours agree with
// its next one in every zone. (Without one CloudKitty rates the running period
// too, a deliberate difference; see fixtures/vectors/README.md.)
func TestReadinessAgreesWithCloudKitty(t *testing.T) {
	file, err := os.Open("../../fixtures/vectors/period.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cases := 0
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var c struct {
			Name        string     `json:"name"`
			Now         *time.Time `json:"now"`
			Last        *time.Time `json:"last"`
			Period      int        `json:"period"`
			WaitPeriods int        `json:"wait_periods"`
			Next        *time.Time `json:"next"`
		}
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		if c.Last == nil || c.Now == nil {
			continue
		}
		period := time.Duration(c.Period) * time.Second
		if ratebatch.CheckPeriodLength(period) != nil || !ratebatch.PeriodAt(*c.Last, period).Begin.Equal(*c.Last) {
			continue // a grid that does not begin at midnight UTC
		}
		cases++
		next := c.Last.Add(period)
		due := !next.Add(period).After(ReadyUntil(*c.Now, period, c.WaitPeriods))
		switch {
		case c.Next == nil && due:
			t.Errorf("%s: %s is due for us, not for CloudKitty (now %s)", c.Name, next, c.Now)
		case c.Next != nil && (!due || !next.Equal(*c.Next)):
			t.Errorf("%s: CloudKitty's next is %s, ours %s (due: %v, now %s)", c.Name, c.Next, next, due, c.Now)
		}
	}
	if cases < 200 {
		t.Errorf("only %d recorded cases were compared", cases)
	}
	t.Logf("%d cases", cases)
}

// A date begins with its first instant: 6 September 2026 in Santiago has no midnight.
func TestAFirstPeriodBeginsOnItsDate(t *testing.T) {
	for date, want := range map[string]string{"2026-09-06": "2026-09-06T04:00:00Z", "2026-09-07": "2026-09-07T03:00:00Z"} {
		first, err := ParseFirstPeriod(date)
		if err != nil {
			t.Fatal(err)
		}
		calendar, err := ratebatch.CalendarOf("America/Santiago")
		if err != nil {
			t.Fatal(err)
		}
		if got := first.begin(time.Time{}, Options{Period: time.Hour, Calendar: calendar}); !got.Equal(at(want)) {
			t.Errorf("%s begins %s, want %s", date, got, want)
		}
	}
}

func TestWindowsWaitForTheRegionsOfAScope(t *testing.T) {
	o := Options{Now: at("2026-11-29T12:30:00Z"), Period: time.Hour, WaitPeriods: 2, First: FirstPeriod{Kind: "month"}}
	usages := []store.ScopeUsage{
		{Scope: "a", Region: "one", FirstUsage: at("2026-11-20T10:00:00Z")},
		{Scope: "b", Region: "one", FirstUsage: at("2026-11-05T10:00:00Z")},
		{Scope: "b", Region: "two", FirstUsage: at("2026-10-31T23:00:00Z")},
		{Scope: "off", Region: "one", FirstUsage: at("2026-11-05T10:00:00Z")},
		{Scope: "new", Region: "three", FirstUsage: at("2026-11-29T10:00:00Z")},
	}
	marks := map[string]store.Watermark{
		"one":  {Region: "one", CompleteUntil: at("2026-11-29T13:00:00Z"), Source: "ingest"},
		"two":  {Region: "two", CompleteUntil: at("2026-11-29T09:59:00Z"), Source: "newest sample"},
		"four": {Region: "four", CompleteUntil: at("2026-01-01T00:00:00Z")},
	}
	states := map[string]store.ScopeState{"off": {Scope: "off"}}
	got, waiting := windows(usages, nil, states, marks, o)
	want := []store.DueWindow{
		{Scope: "a", First: at("2026-11-01T00:00:00Z"), Until: at("2026-11-29T11:00:00Z")},
		{Scope: "b", First: at("2026-10-01T00:00:00Z"), Until: at("2026-11-29T09:00:00Z")},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("windows (-want +got):\n%s", diff)
	}
	regions := map[string]int{}
	for _, w := range waiting {
		regions[w.Region] = w.Scopes
	}
	if diff := cmp.Diff(map[string]int{"two": 1, "three": 1}, regions); diff != "" {
		t.Errorf("waiting (-want +got):\n%s", diff)
	}
}

// Of a region that ingest has not drained yet nothing is rated, nor of scopes that
// may have usage there; since when it waits is what an alarm goes by.
func TestARegionThatIsNotDrainedHoldsItsScopes(t *testing.T) {
	o := Options{Now: at("2026-11-29T12:30:00Z"), Period: time.Hour, WaitPeriods: 2, First: FirstPeriod{Kind: "month"}}
	usages := []store.ScopeUsage{
		{Scope: "a", Region: "old", FirstUsage: at("2026-11-05T10:00:00Z")},
		{Scope: "a", Region: "new", FirstUsage: at("2026-11-29T03:00:00Z")},
		{Scope: "b", Region: "new", FirstUsage: at("2026-11-29T02:00:00Z")},
	}
	marks := map[string]store.Watermark{
		"old": {Region: "old", CompleteUntil: at("2026-11-29T12:00:00Z"), Source: "ingest"},
		"new": {Region: "new", CompleteUntil: time.Unix(0, 0), Source: "ingest has not drained it yet"},
	}
	got, waiting := windows(usages, []store.CommitScope{{Scope: "gone", First: at("2026-11-01T00:00:00Z"), Last: at("2026-11-02T00:00:00Z")}}, nil, marks, o)
	if len(got) != 0 {
		t.Errorf("windows %+v, want none", got)
	}
	want := []Waiting{{Region: "new", Scopes: 3, Until: at("2026-11-29T02:00:00Z"), Reason: "input of region new is not known to be complete up to anywhere (ingest has not drained it yet)"}}
	if diff := cmp.Diff(want, waiting); diff != "" {
		t.Errorf("waiting (-want +got):\n%s", diff)
	}
}

func TestPeriodsWithoutAPlanWait(t *testing.T) {
	window := []store.DueWindow{{Scope: "a", First: at("2026-11-01T00:00:00Z"), Until: at("2026-11-29T00:00:00Z")}}
	plans := []store.Version{{Version: 1, ValidFrom: at("2026-11-10T00:00:00Z"), ValidTo: store.OpenEnd}, {Version: 2, ValidFrom: at("2026-11-20T00:00:00Z"), ValidTo: store.OpenEnd}}
	got, waiting := withPlan(window, nil, plans, time.Hour)
	want := []store.DueWindow{{Scope: "a", First: at("2026-11-10T00:00:00Z"), Until: at("2026-11-29T00:00:00Z")}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("windows (-want +got):\n%s", diff)
	}
	if len(waiting) != 1 || waiting[0].Scopes != 1 {
		t.Errorf("waiting = %+v, want one scope that lacks a plan", waiting)
	}
}

func TestChunksBoundAPass(t *testing.T) {
	day := at("2026-11-01T00:00:00Z")
	var days []store.DueDay
	rows := map[time.Time]uint64{}
	for i := range 10 {
		if i == 6 {
			continue // a day that is done already
		}
		d := day.AddDate(0, 0, i)
		days = append(days, store.DueDay{Day: d, Periods: 24})
		rows[d] = 100
	}
	days[len(days)-1].From, days[len(days)-1].To = at("2026-11-10T13:00:00Z"), at("2026-11-10T17:00:00Z")
	text := func(chunks []chunk) (out []string) {
		for _, c := range chunks {
			out = append(out, c.from.Format("02T15")+"-"+c.to.Format("02T15"))
		}
		return out
	}
	for name, tt := range map[string]struct {
		edges               []time.Time
		maxRows, maxPeriods uint64
		want                []string
	}{
		"all in one pass but for the holes":      {nil, 10_000, 10_000, []string{"01T00-07T00", "08T00-10T00", "10T13-10T17"}},
		"cut by rows":                            {nil, 250, 10_000, []string{"01T00-03T00", "03T00-05T00", "05T00-07T00", "08T00-10T00", "10T13-10T17"}},
		"cut by periods":                         {nil, 10_000, 72, []string{"01T00-04T00", "04T00-07T00", "08T00-10T00", "10T13-10T17"}},
		"a large day is cut too":                 {nil, 50, 10_000, []string{"01T00-01T12", "01T12-02T00", "02T00-02T12", "02T12-03T00", "03T00-03T12", "03T12-04T00", "04T00-04T12", "04T12-05T00", "05T00-05T12", "05T12-06T00", "06T00-06T12", "06T12-07T00", "08T00-08T12", "08T12-09T00", "09T00-09T12", "09T12-10T00", "10T13-10T17"}},
		"a new metric set begins a new pass":     {[]time.Time{at("2026-11-03T00:00:00Z")}, 10_000, 10_000, []string{"01T00-03T00", "03T00-07T00", "08T00-10T00", "10T13-10T17"}},
		"also in the middle of a day":            {[]time.Time{at("2026-11-03T12:00:00Z")}, 10_000, 10_000, []string{"01T00-03T12", "03T12-07T00", "08T00-10T00", "10T13-10T17"}},
		"and where the due periods of a day lie": {[]time.Time{at("2026-11-10T15:00:00Z")}, 10_000, 10_000, []string{"01T00-07T00", "08T00-10T00", "10T13-10T15", "10T15-10T17"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, text(chunks(days, rows, tt.edges, passLimit{tt.maxRows, tt.maxPeriods, time.Hour}))); diff != "" {
				t.Errorf("chunks (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAPeriodIsNeverCut(t *testing.T) {
	day := at("2026-11-01T00:00:00Z")
	got := chunks([]store.DueDay{{Day: day, Periods: 3}}, map[time.Time]uint64{day: 1000}, nil, passLimit{1, 1, 8 * time.Hour})
	want := []chunk{
		{at("2026-11-01T00:00:00Z"), at("2026-11-01T08:00:00Z"), 1, 333},
		{at("2026-11-01T08:00:00Z"), at("2026-11-01T16:00:00Z"), 1, 333},
		{at("2026-11-01T16:00:00Z"), at("2026-11-02T00:00:00Z"), 1, 334},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(chunk{})); diff != "" {
		t.Errorf("chunks (-want +got):\n%s", diff)
	}
	if _, _, ok := got[0].halves(8 * time.Hour); ok {
		t.Error("a period was halved")
	}
	a, b, ok := chunk{at("2026-11-01T00:00:00Z"), at("2026-11-01T05:00:00Z"), 5, 7}.halves(time.Hour)
	if !ok || !a.to.Equal(at("2026-11-01T02:00:00Z")) || !b.from.Equal(a.to) || a.periods+b.periods != 5 || a.rows+b.rows != 7 {
		t.Errorf("halves of five hours: %+v, %+v, %t", a, b, ok)
	}
	a, b, ok = chunk{at("2026-11-01T00:00:00Z"), at("2026-11-04T00:00:00Z"), 72, 7}.halves(time.Hour)
	if !ok || !a.to.Equal(at("2026-11-02T00:00:00Z")) || !b.from.Equal(a.to) {
		t.Errorf("halves of three days: %+v, %+v, %t", a, b, ok)
	}
}

func TestOpenSinceSkipsTheClosedMonths(t *testing.T) {
	for name, tt := range map[string]struct {
		closed []string
		known  []string // months with commits, or that were closed once
		want   string
	}{
		"none":                     {nil, nil, "1970-01-01T00:00:00Z"},
		"a row of months":          {[]string{"2026-09-01T00:00:00Z", "2026-10-01T00:00:00Z"}, []string{"2026-09-01T00:00:00Z"}, "2026-11-01T00:00:00Z"},
		"an open month in between": {[]string{"2026-08-01T00:00:00Z", "2026-10-01T00:00:00Z"}, nil, "2026-09-01T00:00:00Z"},
		"the first was reopened":   {[]string{"2026-09-01T00:00:00Z", "2026-10-01T00:00:00Z"}, []string{"2026-09-01T00:00:00Z", "2026-08-01T00:00:00Z"}, "2026-08-01T00:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			var closed []ratebatch.Month
			for _, c := range tt.closed {
				closed = append(closed, ratebatch.Calendar{}.Named(at(c)))
			}
			var known []ratebatch.Month
			for _, k := range tt.known {
				known = append(known, ratebatch.Calendar{}.Named(at(k)))
			}
			if got := openSince(closed, known...); !got.Equal(at(tt.want)) {
				t.Errorf("openSince = %s, want %s", got, tt.want)
			}
		})
	}
}

// A scope that was rated and has no usage in open months waits for the input of
// every region, and that is said: a region that is gone would hold up the close
// without a word.
func TestAScopeWithoutUsageSaysWhichRegionItWaitsFor(t *testing.T) {
	o := Options{Now: at("2026-12-05T00:00:00Z"), Period: time.Hour, WaitPeriods: 2, First: FirstPeriod{Kind: "month"}}
	commits := []store.CommitScope{{Scope: "gone", First: at("2026-11-01T00:00:00Z"), Last: at("2026-11-05T00:00:00Z")}}
	usages := []store.ScopeUsage{{Scope: "alpha", Region: "a", FirstUsage: at("2026-11-01T00:00:00Z")}}
	marks := map[string]store.Watermark{
		"a": {Region: "a", CompleteUntil: at("2026-12-05T00:00:00Z"), Source: "ingest"},
		"b": {Region: "b", CompleteUntil: at("2026-10-20T00:00:00Z"), Source: "ingest"},
	}
	due, waiting := windows(usages, commits, nil, marks, o)
	if len(due) != 1 || due[0].Scope != "alpha" {
		t.Errorf("windows %+v, want alpha's", due)
	}
	if len(waiting) != 1 || waiting[0].Region != "b" || waiting[0].Scopes != 1 || !strings.Contains(waiting[0].Reason, "region b is complete up to 2026-10-20T00:00:00Z only") {
		t.Errorf("waiting: %+v, want one scope for region b", waiting)
	}
	marks["b"] = store.Watermark{Region: "b", CompleteUntil: at("2027-01-01T00:00:00Z"), Source: "operator"}
	if due, waiting = windows(usages, commits, nil, marks, o); len(due) != 2 || !due[1].Until.Equal(at("2026-12-01T00:00:00Z")) || len(waiting) != 0 {
		t.Errorf("with b's input said to be complete: %+v, waiting %+v; want gone up to the end of November", due, waiting)
	}
}
