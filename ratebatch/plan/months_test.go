package plan_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/plan"
)

func instant(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := plan.ParseTime(text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// timeline has the plan of each text from its moment on: the last is new, and is
// followed by the first again if it has an end.
func timeline(t *testing.T, zone string, plans ...string) plan.Timeline {
	t.Helper()
	calendar, err := ratebatch.CalendarOf(zone)
	if err != nil {
		t.Fatal(err)
	}
	l := plan.Timeline{Calendar: calendar, Period: time.Hour}
	from := instant(t, "2026-10-01")
	for i, x := range plans {
		begin, text, _ := strings.Cut(x, " ")
		if i > 0 {
			from = instant(t, begin)
			l.Stretches[i-1].To = from
		}
		s := plan.Stretch{From: from, To: instant(t, "2027-07-01"), New: i == len(plans)-1}
		if text != "" {
			s.Plan = parse(t, "currency: EUR\n"+text)
		}
		l.Stretches = append(l.Stretches, s)
	}
	return l
}

// without is a timeline without its last plan, which is the new one.
func without(l plan.Timeline) *plan.Timeline {
	n := len(l.Stretches) - 1
	out := plan.Timeline{Calendar: l.Calendar, Period: l.Period, Stretches: append([]plan.Stretch{}, l.Stretches[:n]...)}
	if n > 0 {
		out.Stretches[n-1].To = l.Stretches[n].To
	}
	return &out
}

const (
	cheap   = "services: [{name: egress, tiers: [{id: v, kind: volume, steps: [{up_to: 100, cost: 1}, {cost: 0.5}]}]}]"
	dear    = "services: [{name: egress, tiers: [{id: w, kind: volume, steps: [{up_to: 100, cost: 10}, {cost: 1}]}]}]"
	mapped  = "services: [{name: egress, mappings: [{cost: 3}]}]"
	rising  = "services: [{name: egress, tiers: [{id: g, steps: [{up_to: 100, cost: 1}, {cost: 0.5}]}]}]"
	flat    = "services: [{name: egress, tiers: [{id: f, kind: volume, steps: [{up_to: 100, cost: 7}, {cost: 7}]}]}]"
	minimum = "charges: [{id: least, kind: minimum, amount: 5}]"
	more    = "charges: [{id: least, kind: minimum, amount: 50}]"
)

// An adjustment is the difference of two prices of the tiers in force for all of
// the month, so the month may have no others.
func TestVolumeTiersKeepTheirPriceWithinAMonth(t *testing.T) {
	t.Parallel()
	replace := func(text, old, now string) string {
		if !strings.Contains(text, old) {
			t.Fatalf("no %q in %s", old, text)
		}
		return strings.Replace(text, old, now, 1)
	}
	dated := "services: [{name: egress, tiers: [{id: v, kind: volume, end: 2026-11-15, steps: [{up_to: 100, cost: 1}, {cost: 0.5}]}, {id: w, kind: volume, start: 2026-11-15, steps: [{up_to: 100, cost: 10}, {cost: 1}]}]}]"
	own := replace(cheap, "tiers: [", "tiers: [{id: o, scope: big, start: 2026-11-15, kind: volume, steps: [{up_to: 10, cost: 1}, {cost: 0.4}]}, ")
	for name, tt := range map[string]struct {
		zone  string
		plans []string
		want  string
	}{
		"a version from a month's begin":                 {"", []string{"0 " + cheap, "2026-12-01 " + dear}, ""},
		"a version within a month":                       {"", []string{"0 " + cheap, "2026-11-15 " + dear}, "service egress: volume tiers w give all of a month one price, but their price would change at 2026-11-15T00:00:00Z, within the month from 2026-11-01T00:00:00Z to 2026-12-01T00:00:00Z"},
		"a version from the month's second hour":         {"", []string{"0 " + cheap, "2026-11-01T00:00:01Z " + dear}, "would change at 2026-11-01T01:00:00Z"},
		"a version from within the last hour before":     {"", []string{"0 " + cheap, "2026-10-31T23:30:00Z " + dear}, ""},
		"a date that is no month's begin in the zone":    {"America/New_York", []string{"0 " + cheap, "2026-12-01 " + dear}, "would change at 2026-12-01T00:00:00Z, within the month from 2026-11-01T04:00:00Z to 2026-12-01T05:00:00Z"},
		"the month's begin in the zone":                  {"America/New_York", []string{"0 " + cheap, "2026-12-01T05:00:00Z " + dear}, ""},
		"the same prices, written otherwise":             {"", []string{"0 " + cheap, "2026-11-15 " + replace(replace(cheap, "id: v", "id: x"), "0.5", "0.50")}, ""},
		"another edge":                                   {"", []string{"0 " + cheap, "2026-11-15 " + replace(cheap, "100", "200")}, "their price would change"},
		"a mapping before: the account begins at 0":      {"", []string{"0 " + mapped, "2026-11-15 " + cheap}, ""},
		"a mapping afterwards: nothing is adjusted":      {"", []string{"0 " + cheap, "2026-11-15 " + mapped}, ""},
		"no plan before":                                 {"", []string{"0", "2026-11-15 " + cheap}, ""},
		"a mapping in between: the account goes on":      {"", []string{"0 " + cheap, "2026-11-10 " + mapped, "2026-11-15 " + dear}, "their price would change at 2026-11-15"},
		"back again after another price":                 {"", []string{"0 " + cheap, "2026-11-10 " + rising, "2026-11-15 " + cheap}, "their price would change at 2026-11-15"},
		"graduated before":                               {"", []string{"0 " + rising, "2026-11-15 " + cheap}, "their price would change"},
		"graduated afterwards: nothing is adjusted":      {"", []string{"0 " + cheap, "2026-11-15 " + rising}, ""},
		"one price in all tiers: nothing is adjusted":    {"", []string{"0 " + cheap, "2026-11-15 " + flat}, ""},
		"another account begins at 0":                    {"", []string{"0 " + cheap, "2026-11-15 " + replace(dear, "id: w", "id: w, per: resource")}, ""},
		"start and end within a month":                   {"", []string{"0", "2026-10-15 " + dated}, "volume tiers w give all of a month one price, but their price would change at 2026-11-15T00:00:00Z"},
		"start and end at a month's begin":               {"", []string{"0", "2026-10-15 " + strings.ReplaceAll(dated, "2026-11-15", "2026-12-01")}, ""},
		"start and end before the plan is in force":      {"", []string{"0", "2026-12-01 " + dated}, ""},
		"stored already within the month, unchanged":     {"", []string{"0 " + dated, "2026-11-20 " + dated}, ""},
		"a version of before within the month, as it is": {"", []string{"0 " + cheap, "2026-11-15 " + dear, "2026-11-20 " + dear}, ""},
		"back to what was before a stored version":       {"", []string{"0 " + cheap, "2026-11-15 " + dear, "2026-11-20 " + cheap}, "their price would change at 2026-11-20"},
		"stored already":                                 {"", []string{"0 " + dated, "2026-12-01 " + dear}, ""},
		"a scope's own tiers within a month":             {"", []string{"0", "2026-10-15 " + own}, "volume tiers o give all of a month one price, but their price of scope big would change at 2026-11-15T00:00:00Z"},
		"a discount that starts within a month":          {"", []string{"0", "2026-10-15 " + cheap + "\ndiscounts: [{percent: 10, start: 2026-11-15}]"}, "their discount would change at 2026-11-15"},
		"a discount that starts with a month":            {"", []string{"0", "2026-10-15 " + cheap + "\ndiscounts: [{percent: 10, start: 2026-11-01}]"}, ""},
		"a discount of another metric":                   {"", []string{"0", "2026-10-15 " + cheap + "\ndiscounts: [{percent: 10, metric: vm, start: 2026-11-15}]"}, ""},
		"a general discount below the metric's":          {"", []string{"0", "2026-10-15 " + cheap + "\ndiscounts: [{percent: 10, start: 2026-11-15}, {percent: 5, metric: egress}]"}, ""},
		"a scope's discount":                             {"", []string{"0 " + cheap, "2026-11-15 " + cheap + "\ndiscounts: [{percent: 10, scope: big}]"}, "their discount of scope big would change"},
		"a description":                                  {"", []string{"0 " + cheap, "2026-11-15 " + replace(cheap, "services", "description: x\nservices"), "2026-11-20 " + cheap}, ""},
		"a module that is switched off and on elsewhere": {"", []string{"0 " + cheap, "2026-11-15 modules: [{module: hashmap, scope: other, enabled: false}]\n" + cheap}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			l := timeline(t, tt.zone, tt.plans...)
			if got := strings.Join(l.VolumeChanges(without(l)), "\n"); tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

// What an adjustment is of, another currency cannot pay.
func TestVolumeTiersKeepTheirCurrencyWithinAMonth(t *testing.T) {
	t.Parallel()
	l := timeline(t, "", "0 "+cheap, "2026-11-15 "+cheap)
	l.Stretches[1].Plan.Currency = "USD"
	if got := strings.Join(l.VolumeChanges(without(l)), "\n"); !strings.Contains(got, "their currency would change at 2026-11-15T00:00:00Z") {
		t.Errorf("%q", got)
	}
}

// A charge is that of the month's last period. A date is midnight UTC, which west
// of it is within the month before.
func TestChargesOfAMonthThatWasNotMeant(t *testing.T) {
	t.Parallel()
	from := func(at string) string { return strings.Replace(minimum, "id: least", "id: least, start: "+at, 1) }
	until := func(at string) string { return strings.Replace(minimum, "id: least", "id: least, end: "+at, 1) }
	const west, east = "America/New_York", "Europe/Berlin"
	for name, tt := range map[string]struct {
		zone  string
		plans []string
		want  string
	}{
		"a version from a date, west":                  {west, []string{"0 " + minimum, "2026-12-01 " + more}, "from 2026-12-01T00:00:00Z on the charges would be minimum 50 instead of minimum 5: that is within the month that ends at 2026-12-01T05:00:00Z and so changes that month; for the month after it write 2026-12-01T05:00:00Z"},
		"a version from the month's begin, west":       {west, []string{"0 " + minimum, "2026-12-01T05:00:00Z " + more}, ""},
		"a version from the last hour, west":           {west, []string{"0 " + minimum, "2026-12-01T04:00:00Z " + more}, "write 2026-12-01T05:00:00Z"},
		"within the last hour counts from the next":    {west, []string{"0 " + minimum, "2026-12-01T04:00:01Z " + more}, ""},
		"a day before, west":                           {west, []string{"0 " + minimum, "2026-11-30T05:00:00Z " + more}, "write 2026-12-01T05:00:00Z"},
		"more than a day before, west":                 {west, []string{"0 " + minimum, "2026-11-30T04:00:00Z " + more}, ""},
		"a version from a date, east":                  {east, []string{"0 " + minimum, "2026-12-01 " + more}, ""},
		"a version from a date, UTC":                   {"", []string{"0 " + minimum, "2026-12-01 " + more}, ""},
		"a version from the last day, UTC":             {"", []string{"0 " + minimum, "2026-11-30T12:00:00Z " + more}, ""},
		"a version with the same charges":              {west, []string{"0 " + minimum, "2026-12-01 " + minimum + "\n" + rising}, ""},
		"the first plan":                               {west, []string{"0", "2026-12-01 " + minimum}, "would be minimum 5 instead of none"},
		"a charge's start, west":                       {west, []string{"0", "2026-11-10 " + from("2026-12-01")}, "would be minimum 5 instead of none"},
		"a charge's end, west":                         {west, []string{"0", "2026-11-10 " + until("2026-12-01")}, "would be none instead of minimum 5"},
		"a charge's end, east":                         {east, []string{"0", "2026-11-10 " + until("2026-12-01")}, ""},
		"a charge's end at the month's begin, west":    {west, []string{"0", "2026-11-10 " + until("2026-12-01T05:00:00Z")}, ""},
		"a charge's start before it is in force":       {west, []string{"0", "2026-12-10 " + from("2026-12-01")}, ""},
		"a charge's start that is stored already":      {west, []string{"0 " + from("2026-12-01"), "2026-12-10 " + rising}, ""},
		"an hour past the month's begin, west, summer": {"America/New_York", []string{"0", "2026-11-10 " + from("2027-04-01T05:00:00Z")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			l := timeline(t, tt.zone, tt.plans...)
			if got := strings.Join(l.ChargeChanges(), "\n"); tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("%s\nwant\n%s", got, tt.want)
			}
		})
	}
}
