package plan

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch"
)

// Some prices are of a whole billing month, and a plan that changes within one
// can make them wrong. Volume tiers bring all that was used before to another
// price: the difference of two steps of the tiers in force, which is right only
// for what those tiers, with their discount, charged. A minimum or cap is that of
// the month's last period.

// Stretch is a stretch of time with one plan: that of the periods that begin in
// [From, To).
type Stretch struct {
	From, To time.Time
	Plan     *Plan // nil: none
	New      bool  // it is about to be applied; what is stored already is not judged
}

// Timeline is the plans that are in force one after the other.
type Timeline struct {
	Stretches []Stretch // without gaps, from a month's begin on to a month's begin
	Calendar  ratebatch.Calendar
	Period    time.Duration
}

// nearMonth is how far from a month's begin a moment can be that was meant to be
// it: a date is midnight UTC, and no zone is a day away from that.
const nearMonth = 24 * time.Hour

// MeantMonth gives the begin of the month that t lies near without being it. It
// does so only where months do not begin at midnight UTC: there a plain date,
// which is midnight UTC, is not the month's begin that it looks like.
func MeantMonth(calendar ratebatch.Calendar, t time.Time) (begin time.Time, near bool) {
	m := calendar.MonthAt(t)
	for _, begin := range []time.Time{m.From, m.To} {
		if !begin.Equal(t) && begin.Sub(t).Abs() <= nearMonth && !begin.Equal(begin.Truncate(nearMonth)) {
			return begin, true
		}
	}
	return time.Time{}, false
}

// at is the stretch of periods that begin at t.
func (l *Timeline) at(t time.Time) *Stretch {
	for i := range l.Stretches {
		if s := &l.Stretches[i]; !t.Before(s.From) && t.Before(s.To) {
			return s
		}
	}
	return &Stretch{From: t, To: t.Add(l.Period)}
}

// changes are the begins of the first periods for which something changes: a
// stretch, or one of the moments within it. Sorted, without the timeline's begin.
func (l *Timeline) changes(moments func(s *Stretch) iter.Seq[time.Time]) []time.Time {
	var out []time.Time
	for i := range l.Stretches {
		s := &l.Stretches[i]
		if i > 0 {
			out = append(out, ratebatch.BeginFrom(s.From, l.Period))
		}
		for t := range moments(s) {
			if t.After(s.From) && t.Before(s.To) {
				out = append(out, ratebatch.BeginFrom(t, l.Period))
			}
		}
	}
	slices.SortFunc(out, time.Time.Compare)
	return slices.CompactFunc(out, time.Time.Equal)
}

// VolumeChanges says which metrics with volume tiers change their price within a
// month in a way that would adjust what was charged by another price: one text
// for each, empty if there is none. What is as it stands in stored, which are the
// plans without the new one, is not judged.
func (l *Timeline) VolumeChanges(stored *Timeline) []string {
	names := map[string]bool{}
	for i := range l.Stretches {
		if p := l.Stretches[i].Plan; p != nil {
			for j := range p.Services {
				names[p.Services[j].Name] = names[p.Services[j].Name] || slices.ContainsFunc(p.Services[j].Tiers, func(t Tiers) bool { return t.adjusts() })
			}
		}
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !names[name] {
			continue
		}
		prices := map[*Stretch]*monthPrices{}
		scopes := map[string]bool{"": true}
		for _, of := range []*Timeline{l, stored} {
			for i := range of.Stretches {
				s := &of.Stretches[i]
				prices[s] = newMonthPrices(name, s)
				for scope := range prices[s].scopes() {
					scopes[scope] = true
				}
			}
		}
		for _, scope := range slices.Sorted(maps.Keys(scopes)) {
			if text := l.volumeChange(stored, prices, scope); text != "" {
				out = append(out, "service "+name+": "+text)
				break
			}
		}
	}
	return out
}

// volumeChange is the first change of a metric's price for a scope that its
// volume tiers cannot take.
func (l *Timeline) volumeChange(stored *Timeline, prices map[*Stretch]*monthPrices, scope string) string {
	changes := l.changes(func(s *Stretch) iter.Seq[time.Time] { return prices[s].moments(scope) })
	at := func(t time.Time) monthPrice {
		out, was := monthPrice{}, monthPrice{}
		if x := prices[l.at(t)]; x != nil {
			out = x.at(scope, t)
		}
		if x := prices[stored.at(t)]; x != nil {
			was = x.at(scope, t)
		}
		out.isNew = !out.is(&was)
		return out
	}
	var month ratebatch.Month
	var before []monthPrice // in this month
	for _, t := range changes {
		if !month.Contains(t) {
			month = l.Calendar.MonthAt(t)
			before = []monthPrice{at(month.From)}
		}
		if t.Equal(month.From) {
			continue
		}
		now := at(t)
		for _, old := range before {
			if what := now.adjustsOther(old); what != "" && (now.isNew || old.isNew) {
				of := ""
				if scope != "" {
					of = " of scope " + scope
				}
				return fmt.Sprintf("volume tiers %s give all of a month one price, but their %s%s would change at %s, within the month from %s to %s",
					now.tiers.ID, what, of, t.Format(time.RFC3339), month.From.Format(time.RFC3339), month.To.Format(time.RFC3339))
			}
		}
		before = append(before, now)
	}
	return ""
}

// monthPrice is what prices a metric's month for a scope; without tiers the
// month does not matter.
type monthPrice struct {
	tiers    *Tiers
	percent  decimal.Decimal // the discount
	currency string
	isNew    bool // it is not what was stored before
}

// is says whether a price is another one.
func (x *monthPrice) is(o *monthPrice) bool {
	if x.tiers == nil || o.tiers == nil {
		return x.tiers == o.tiers
	}
	return x.currency == o.currency && x.tiers.Per == o.tiers.Per && x.tiers.prices(o.tiers) && x.percent.Equal(o.percent)
}

// adjustsOther names what makes the price another than the one before it in the
// month, if it would adjust what that one charged.
func (x *monthPrice) adjustsOther(before monthPrice) string {
	switch {
	case x.tiers == nil || before.tiers == nil || !x.tiers.adjusts() || x.tiers.Per != before.tiers.Per: // another account begins at 0
		return ""
	case x.currency != before.currency:
		return "currency"
	case !x.tiers.prices(before.tiers):
		return "price"
	case !x.percent.Equal(before.percent):
		return "discount"
	}
	return ""
}

// adjusts says whether entering another tier changes what was charged before.
func (t *Tiers) adjusts() bool {
	return t.Kind == Volume && slices.ContainsFunc(t.Steps, func(s TierStep) bool { return !s.Cost.Equal(t.Steps[0].Cost) })
}

// prices says whether the tiers charge what others do.
func (t *Tiers) prices(o *Tiers) bool {
	return t.Kind == o.Kind && slices.EqualFunc(t.All(), o.All(), func(a, b TierStep) bool {
		return a.Cost.Equal(b.Cost) && (a.UpTo == nil) == (b.UpTo == nil) && (a.UpTo == nil || a.UpTo.Equal(*b.UpTo))
	})
}

// monthPrices finds what prices a metric in a stretch, by scope.
type monthPrices struct {
	stretch   *Stretch
	metric    string
	tiers     map[string][]*Tiers
	discounts map[string][]*Discount // those that can apply to the metric
	hashmap   map[string]bool        // whether the module is on
}

func newMonthPrices(metric string, s *Stretch) *monthPrices {
	x := &monthPrices{s, metric, map[string][]*Tiers{}, map[string][]*Discount{}, map[string]bool{}}
	if s.Plan == nil {
		return x
	}
	for i := range s.Plan.Services {
		if s.Plan.Services[i].Name != metric {
			continue
		}
		for j := range s.Plan.Services[i].Tiers {
			t := &s.Plan.Services[i].Tiers[j]
			x.tiers[t.Scope] = append(x.tiers[t.Scope], t)
		}
	}
	for i := range s.Plan.Discounts {
		if d := &s.Plan.Discounts[i]; d.Metric == "" || d.Metric == metric {
			x.discounts[d.Scope] = append(x.discounts[d.Scope], d)
		}
	}
	for _, scope := range append(s.Plan.ModuleScopes(), "") {
		x.hashmap[scope] = slices.Contains(s.Plan.ModulesFor(scope), Hashmap)
	}
	return x
}

// scopes are those with a price of their own.
func (x *monthPrices) scopes() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, keys := range []iter.Seq[string]{maps.Keys(x.tiers), maps.Keys(x.discounts), maps.Keys(x.hashmap)} {
			for scope := range keys {
				if !yield(scope) {
					return
				}
			}
		}
	}
}

// moments are those at which the price of a scope can change.
func (x *monthPrices) moments(scope string) iter.Seq[time.Time] {
	var out []time.Time
	for _, of := range []string{"", scope} {
		for _, t := range x.tiers[of] {
			out = append(out, t.Start, t.End)
		}
		for _, d := range x.discounts[of] {
			out = append(out, d.Start, d.End)
		}
	}
	return slices.Values(out)
}

// at is what prices the scope's periods that begin at t.
func (x *monthPrices) at(scope string, t time.Time) monthPrice {
	var out monthPrice
	on, own := x.hashmap[scope]
	if !own {
		on = x.hashmap[""]
	}
	if !on {
		return out
	}
	for _, of := range []string{"", scope} {
		for _, tiers := range x.tiers[of] {
			if tiers.ValidAt(t) {
				out.tiers = tiers
			}
		}
		// Of the discounts in one scope that of the metric counts before the general one.
		for _, metric := range []string{"", x.metric} {
			for _, d := range x.discounts[of] {
				if d.Metric == metric && Holds(d.Start, d.End, t) {
					out.percent = d.Percent
				}
			}
		}
	}
	out.currency = x.stretch.Plan.Currency
	return out
}

// ChargeChanges says which minimums and caps change within the last day of a
// month although the month's begin was probably meant: the change would be in
// force at the last period of that month and so be that month's. One text for
// each moment; none where months begin at midnight UTC.
func (l *Timeline) ChargeChanges() []string {
	var out []string
	for _, t := range l.changes(func(s *Stretch) iter.Seq[time.Time] {
		return func(yield func(time.Time) bool) {
			if s.Plan == nil {
				return
			}
			for i := range s.Plan.Charges {
				if c := &s.Plan.Charges[i]; !yield(c.Start) || !yield(c.End) {
					return
				}
			}
		}
	}) {
		meant, near := MeantMonth(l.Calendar, t)
		last := t.Add(-l.Period)
		was, is := l.at(last), l.at(t)
		if !near || !meant.After(t) || !was.New && !is.New {
			continue
		}
		before, after := was.charges(last), is.charges(t)
		if gone, come := without(before, after), without(after, before); len(gone)+len(come) > 0 {
			out = append(out, fmt.Sprintf("from %s on the charges would be %s instead of %s: that is within the month that ends at %s and so changes that month; for the month after it write %[4]s",
				t.Format(time.RFC3339), listSome(come), listSome(gone), meant.Format(time.RFC3339)))
		}
	}
	return out
}

// charges are the minimums and caps that hold for a month whose last period
// begins at t, as texts.
func (s *Stretch) charges(t time.Time) []string {
	var out []string
	if s.Plan != nil {
		for i := range s.Plan.Charges {
			if c := &s.Plan.Charges[i]; Holds(c.Start, c.End, t) {
				text := fmt.Sprintf("%s %s", c.Kind, c.Amount)
				if c.Scope != "" {
					text += " for " + c.Scope
				}
				out = append(out, text)
			}
		}
	}
	return out
}

// Moment is a time that a rule of the plan begins or ends to hold at.
type Moment struct {
	What string // the rule, and start or end
	At   Position
	Time time.Time
}

// Moments yields the starts and ends of all rules; those that are open have none.
func (p *Plan) Moments() iter.Seq[Moment] {
	return func(yield func(Moment) bool) {
		both := func(what string, at Position, start, end time.Time) bool {
			return (start.IsZero() || yield(Moment{what + ", start", at, start})) && (end.IsZero() || yield(Moment{what + ", end", at, end}))
		}
		for r := range p.Rules() {
			if (!r.Start.IsZero() || !r.End.IsZero()) && !both(r.String(), r.At, r.Start, r.End) {
				return
			}
		}
		for i := range p.Services {
			for j := range p.Services[i].Tiers {
				if t := &p.Services[i].Tiers[j]; !both("service "+p.Services[i].Name+", tiers "+t.ID, t.at, t.Start, t.End) {
					return
				}
			}
		}
		for i := range p.Expressions {
			if x := &p.Expressions[i]; !both("expression "+x.ID, x.at, x.Start, x.End) {
				return
			}
		}
		for i := range p.Discounts {
			if x := &p.Discounts[i]; !both("discount "+x.ID, x.at, x.Start, x.End) {
				return
			}
		}
		for i := range p.Charges {
			if x := &p.Charges[i]; !both(string(x.Kind)+" "+x.ID, x.at, x.Start, x.End) {
				return
			}
		}
	}
}
