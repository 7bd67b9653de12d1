package rate

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// FirstPeriod says where a scope's first period begins.
type FirstPeriod struct {
	Kind string    // month, usage or date
	Date time.Time // for date
}

// ParseFirstPeriod reads month, usage or a date such as 2026-11-01.
func ParseFirstPeriod(text string) (FirstPeriod, error) {
	switch text {
	case "", "month":
		return FirstPeriod{Kind: "month"}, nil
	case "usage":
		return FirstPeriod{Kind: "usage"}, nil
	}
	date, err := time.Parse(time.DateOnly, text)
	if err != nil {
		return FirstPeriod{}, &ratebatch.ConfigError{Err: fmt.Errorf("first period %q", text), Hint: "write month, usage or a date such as 2026-11-01"}
	}
	return FirstPeriod{Kind: "date", Date: date}, nil
}

// String is the form that ParseFirstPeriod reads.
func (f FirstPeriod) String() string {
	switch f.Kind {
	case "usage":
		return "usage"
	case "date":
		return f.Date.Format(time.DateOnly)
	default:
		return "month"
	}
}

// begin is where the periods of a scope begin whose usage begins at usage. A
// date begins where the day does in the billing time zone.
func (f FirstPeriod) begin(usage time.Time, o Options) time.Time {
	switch f.Kind {
	case "usage":
		return ratebatch.PeriodAt(usage, o.Period).Begin
	case "date":
		return ratebatch.PeriodAt(o.Calendar.DayBegin(f.Date), o.Period).Begin
	default:
		return o.Calendar.MonthAt(usage).From
	}
}

// ReadyUntil is the end of the last period that may be rated at now: a period
// is ready when begin + wait × period < now. It is CloudKitty's rule, strict,
// and holds for a scope's first period as well.
func ReadyUntil(now time.Time, period time.Duration, wait int) time.Time {
	// The largest begin that still is before now − wait × period.
	last := now.Add(-time.Duration(wait) * period).Add(-time.Nanosecond)
	return ratebatch.PeriodAt(last, period).End
}

// Waiting says why periods that could be ready are not.
type Waiting struct {
	Region string    `json:"region,omitempty"`
	Scopes int       `json:"scopes"`
	Until  time.Time `json:"complete_until"` // where that is not known, where the usage begins that waits
	Reason string    `json:"reason"`
}

// windows decides, for each active scope, in which window periods can be due.
// A scope waits for the regions it has usage in; a region that never had usage
// of it holds it up nowhere. A scope that was rated and has no usage any more is
// rated to the end of the month of its last period.
func windows(usages []store.ScopeUsage, commits []store.CommitScope, states map[string]store.ScopeState, marks map[string]store.Watermark, o Options) ([]store.DueWindow, []Waiting) {
	ready := ReadyUntil(o.Now, o.Period, o.WaitPeriods)
	type scope struct {
		first, until time.Time
		held         string    // the region that it waits for
		since        time.Time // its first usage there
	}
	scopes := map[string]*scope{}
	waiting := map[string]*Waiting{}
	for _, u := range usages {
		if !isActive(states, u.Scope) {
			continue
		}
		s := scopes[u.Scope]
		if s == nil {
			s = &scope{first: u.FirstUsage, until: ready}
			scopes[u.Scope] = s
		}
		if u.FirstUsage.Before(s.first) {
			s.first = u.FirstUsage
		}
		// A period is complete when the watermark has passed its end; without one none is.
		until := ratebatch.PeriodAt(marks[u.Region].CompleteUntil, o.Period).Begin
		if until.Before(s.until) {
			s.until, s.held, s.since = until, u.Region, u.FirstUsage
		}
	}
	rated := map[string]time.Time{}
	complete, slowest := ready, ""
	for region, mark := range marks {
		until := ratebatch.PeriodAt(mark.CompleteUntil, o.Period).Begin
		if until.Before(complete) || until.Equal(complete) && slowest != "" && region < slowest {
			complete, slowest = until, region
		}
	}
	for _, c := range commits {
		rated[c.Scope] = c.First
		if scopes[c.Scope] == nil && isActive(states, c.Scope) {
			// In which region it would have usage nobody knows: it waits for all of them.
			s := &scope{first: c.First, until: o.Calendar.MonthAt(c.Last).To}
			if complete.Before(s.until) {
				s.until, s.held = complete, slowest
			}
			scopes[c.Scope] = s
		}
	}
	var out []store.DueWindow
	for name, s := range scopes {
		if s.held != "" {
			w := waiting[s.held]
			if w == nil {
				w = &Waiting{Region: s.held, Until: s.until, Reason: reason(s.held, marks)}
				waiting[s.held] = w
			}
			w.Scopes++
			if !said(marks, s.held) && (w.Until.Unix() <= 0 || !s.since.IsZero() && s.since.Before(w.Until)) {
				w.Until = s.since
			}
		}
		first := o.First.begin(s.first, o)
		if begun, ok := rated[name]; ok && o.First.Kind != "date" {
			first = ratebatch.Earlier(first, begun)
		}
		if first.Before(s.until) {
			out = append(out, store.DueWindow{Scope: name, First: first, Until: s.until})
		}
	}
	slices.SortFunc(out, func(a, b store.DueWindow) int { return strings.Compare(a.Scope, b.Scope) })
	var list []Waiting
	for _, w := range waiting {
		list = append(list, *w)
	}
	slices.SortFunc(list, func(a, b Waiting) int { return strings.Compare(a.Region, b.Region) })
	return out, list
}

// said says whether it is known of a region up to when its input is complete.
func said(marks map[string]store.Watermark, region string) bool {
	return marks[region].CompleteUntil.Unix() > 0
}

func reason(region string, marks map[string]store.Watermark) string {
	mark, known := marks[region]
	switch {
	case !known:
		return fmt.Sprintf("region %s has no watermark", region)
	case !said(marks, region):
		return fmt.Sprintf("input of region %s is not known to be complete up to anywhere (%s)", region, mark.Source)
	}
	return fmt.Sprintf("input of region %s is complete up to %s only (%s)", region, mark.CompleteUntil.UTC().Format(time.RFC3339), mark.Source)
}

// chunk is a stretch of whole days, or parts of them, that one pass rates.
type chunk struct {
	from, to time.Time
	periods  uint64
	rows     uint64
}

// passLimit bounds one pass: about 750 bytes of the engine's memory a usage row
// and 1.5 kB a period. A period is never cut.
type passLimit struct {
	rows, periods uint64 // estimated
	period        time.Duration
}

// chunks cuts the due days into passes within the limit. Passes also end at the
// given edges, where another metric set takes over.
func chunks(days []store.DueDay, rowsOn map[time.Time]uint64, edges []time.Time, limit passLimit) []chunk {
	var out []chunk
	for _, d := range days {
		from, to, rows := d.Day, d.Day.AddDate(0, 0, 1), rowsOn[d.Day]
		if !d.From.IsZero() {
			from, to = d.From, d.To
			rows = rows * uint64(to.Sub(from)/time.Second) / 86400
		}
		// An estimate knows no hours: the parts of a day are taken for equal.
		cuts := cutEvenly(from, to, limit.period, max(ceil(rows, limit.rows), ceil(d.Periods, limit.periods)))
		for i, cut := range cuts {
			n := uint64(len(cuts))
			part := chunk{rows: share(rows, uint64(i), n), periods: share(d.Periods, uint64(i), n)}
			for _, end := range append(edgesBetween(edges, from, cut), cut) {
				last := len(out) - 1
				fits := last >= 0 && out[last].to.Equal(from) && !slices.ContainsFunc(edges, from.Equal) &&
					out[last].rows+part.rows <= limit.rows && out[last].periods+part.periods <= limit.periods
				if fits {
					out[last].to = end
					out[last].rows += part.rows
					out[last].periods += part.periods
				} else {
					out = append(out, chunk{from, end, part.periods, part.rows})
				}
				from = end
			}
		}
	}
	return out
}

// share is the ith of n about equal shares of the whole; they add up to it.
func share(whole, i, n uint64) uint64 { return whole*(i+1)/n - whole*i/n }

// ceil is n ÷ d, rounded up; 1 where d is 0, no limit.
func ceil(n, d uint64) uint64 {
	if d == 0 || n == 0 {
		return 1
	}
	return (n-1)/d + 1
}

// cutEvenly gives the ends of at most so many parts of [from, to), about equal
// and each of whole periods; the last is to.
func cutEvenly(from, to time.Time, period time.Duration, parts uint64) []time.Time {
	periods := max(1, uint64(to.Sub(from)/period))
	parts = min(parts, periods)
	cuts := make([]time.Time, parts)
	for i := range parts {
		cuts[i] = from.Add(time.Duration((i+1)*periods/parts) * period)
	}
	cuts[parts-1] = to
	return cuts
}

// halves cuts a chunk of several periods in two, at midnight where it has one.
func (c chunk) halves(period time.Duration) (a, b chunk, ok bool) {
	middle := ratebatch.PeriodAt(c.from.Add(c.to.Sub(c.from)/2), 24*time.Hour).Begin
	if !middle.After(c.from) {
		middle = ratebatch.PeriodAt(c.from.Add(c.to.Sub(c.from)/2), period).Begin
	}
	if !middle.After(c.from) {
		return c, c, false
	}
	a, b = c, c
	a.to, b.from = middle, middle
	a.periods, a.rows = c.periods/2, c.rows/2
	b.periods, b.rows = c.periods-a.periods, c.rows-a.rows
	return a, b, true
}

// Shard is one of Count runs that share the scopes among them; Count 0 or 1
// means all scopes.
type Shard struct{ Index, Count int }

// ParseShard reads i/n, such as 0/4; empty is all scopes.
func ParseShard(text string) (Shard, error) {
	if text == "" {
		return Shard{}, nil
	}
	var s Shard
	index, count, ok := strings.Cut(text, "/")
	i, errIndex := strconv.Atoi(index)
	n, errCount := strconv.Atoi(count)
	if !ok || errIndex != nil || errCount != nil || n < 1 || i < 0 || i >= n {
		return s, &ratebatch.ConfigError{Err: fmt.Errorf("shard %q", text), Hint: "write i/n with i from 0 to n-1, such as 0/4"}
	}
	return Shard{i, n}, nil
}

// String is the form that ParseShard reads.
func (s Shard) String() string {
	if s.Count < 2 {
		return ""
	}
	return fmt.Sprintf("%d/%d", s.Index, s.Count)
}

func (s Shard) has(scope string) bool {
	if s.Count < 2 {
		return true
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(scope))
	return int(hash.Sum32()%uint32(s.Count)) == s.Index
}

func (s Shard) windows(all []store.DueWindow) []store.DueWindow {
	return slices.DeleteFunc(all, func(w store.DueWindow) bool { return !s.has(w.Scope) })
}

func edgesBetween(edges []time.Time, from, to time.Time) []time.Time {
	var out []time.Time
	for _, e := range edges {
		if e.After(from) && e.Before(to) {
			out = append(out, e)
		}
	}
	return out
}

// touched are the months that the plan's passes write in, and those in which
// nothing is due.
func (p *Plan) touched() []time.Time {
	var out []time.Time
	add := func(month time.Time) {
		if !slices.ContainsFunc(out, month.Equal) {
			out = append(out, month)
		}
	}
	for _, c := range p.chunks {
		for m := monthOf(c.from); m.Before(c.to); m = m.AddDate(0, 1, 0) {
			add(m)
		}
	}
	for _, m := range p.complete {
		add(m.Month)
	}
	return out
}

func isActive(scopes map[string]store.ScopeState, name string) bool {
	state, ok := scopes[name]
	return !ok || state.Active
}
