package rate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/jobs"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/hashmap"
	"github.com/ratebatch/ratebatch/ratebatch/metric"
	"github.com/ratebatch/ratebatch/ratebatch/plan"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// Order does not matter. A period of a month with tiers rests on what the
// periods before it used, and they may be rated, reset or rated again after it.
// So every run ends with a look at the commits made since the look before: where
// one has later neighbours, the month is added up again from what its commits
// say, without reading usage. A later period whose carry-in has changed is due
// for a revision if that changes a line of it: if it now begins in another tier,
// or if it is cut at another place.

// maxCarryRounds bounds how often a run rates what its own commits have
// changed. Quantities settle in the first round, a month's minimum and cap in the
// second; a third finds nothing unless others commit in between.
const maxCarryRounds = 5

// tieredPlans are the plans with tiers, minimums or caps, by digest.
type tieredPlans map[string]*tieredPlan

type tieredPlan struct {
	plan      *plan.Plan
	evaluator *hashmap.Evaluator
	metrics   []string // with tiers
	currency  string
}

func (t terms) tiered() (tieredPlans, error) {
	out := tieredPlans{}
	for _, v := range t.plans {
		// Parsing a plan of 100,000 rules takes a second; the words cost nothing.
		if !strings.Contains(v.Body, "tiers") && !strings.Contains(v.Body, "charges") || out[v.Digest] != nil {
			continue
		}
		p, err := plan.Parse("rate plan", []byte(v.Body))
		if err != nil {
			return nil, err
		}
		if !p.HasTiers() && len(p.Charges) == 0 {
			continue
		}
		e, err := hashmap.Compile(p, hashmap.Options{})
		if err != nil {
			return nil, err
		}
		x := &tieredPlan{plan: p, evaluator: e, currency: v.Currency}
		for _, s := range p.Services {
			if len(s.Tiers) > 0 {
				x.metrics = append(x.metrics, s.Name)
			}
		}
		out[v.Digest] = x
	}
	return out, nil
}

// settleCarries rates again what the run's commits have changed behind them.
func (j *Job) settleCarries(ctx context.Context, plan *Plan, result *Result, scopes map[string]bool) error {
	tiered, err := plan.terms.tiered()
	if err != nil || len(tiered) == 0 {
		return err
	}
	closed, err := j.closedMonths(ctx)
	if err != nil {
		return err
	}
	expired := map[store.DueWindow]bool{} // periods whose tier does not hold them for sure
	var gone []error                      // what to do about them
	for range maxCarryRounds {
		changed, look, err := j.changedCarries(ctx, tiered)
		if err != nil {
			return err
		}
		changed, odd := apart(changed, func(w store.DueWindow) bool {
			return ratebatch.PeriodAt(w.First, j.Options.Period) != ratebatch.Period{Begin: w.First, End: w.Until}
		})
		if len(odd) > 0 {
			// To rate them in today's periods would bill the same time twice.
			j.Log.WarnContext(ctx, "carry-in changed in periods of another length", "periods", len(odd), jobs.KeyScope, odd[0].Scope, "first", odd[0].First)
		}
		changed, lost := apart(changed, func(w store.DueWindow) bool {
			return result.lost[store.ScopePeriod{Scope: w.Scope, Begin: w.First, End: w.Until}]
		})
		held := 0
		if !plan.asked {
			open := outside(changed, closed)
			if held = len(changed) - len(open); held > 0 {
				// Nobody asked this run for a correction of a closed month.
				j.Log.WarnContext(ctx, "carry-in changed in a closed month", "periods", held, "hint", "a correction of it was cut: finish it with 'ratebatch reprocess'")
			}
			changed = open
		}
		// A scope that cannot be rated in this run is settled by the run that can, and
		// so is a period whose usage is not there for sure.
		mine, _ := apart(j.Options.Shard.windows(slices.Clone(changed)), func(w store.DueWindow) bool { return result.hasFailed(w.Scope) || expired[w] })
		if len(mine) == 0 {
			result.carries = append(carriesLost(lost), gone...)
			// The look is noted only when nothing is left to do: a run that dies before
			// is made up for by the next, and other shards find what is theirs. What is held
			// is for the correction that was cut, which would not find it after a look.
			// What lost its usage in an open month keeps its lines and is named by every run
			// until its usage is there again or it is reset: after a look nobody would know
			// of it, and a close would freeze a minimum, a cap or a tier that is wrong. Until
			// then looks go back as far. A closed month has no close to wait for.
			if len(changed) > 0 || held > 0 || len(outside(lost, closed)) > 0 {
				return nil
			}
			return j.Store.NoteCarryLook(ctx, look.now, look.scopes, look.changed)
		}
		next := *plan
		next.complete = nil
		next.reason = "what was used before it in the month changed"
		for part := range slices.Chunk(merge(mine), maxLateWindows) {
			next.windows = nil
			for _, w := range part {
				w.Again = look.now
				next.windows = append(next.windows, w)
			}
			again := next
			if err := j.due(ctx, &again, nil); err != nil {
				return err
			}
			if again.expired != nil {
				gone = append(gone, again.expired)
				of := map[string][]store.DueWindow{}
				for _, g := range again.gone {
					of[g.Scope] = append(of[g.Scope], g)
				}
				for _, w := range mine {
					if slices.ContainsFunc(of[w.Scope], func(g store.DueWindow) bool { return !w.First.Before(g.First) && w.First.Before(g.Until) }) {
						expired[w] = true
					}
				}
			}
			before := result.Periods
			if err := j.passes(ctx, &again, result, scopes); err != nil {
				return err
			}
			result.Carried += result.Periods - before
			plan.chunks = append(plan.chunks, again.chunks...) // for what is noted about months
		}
	}
	result.carries = append(gone, &ratebatch.TryAgainError{Err: errors.New("carry-ins of tiered prices keep changing"), Hint: "another job commits in the same months; run it again afterwards"})
	return nil
}

// apart takes out of the windows those that a condition holds for.
func apart(windows []store.DueWindow, is func(store.DueWindow) bool) (others, those []store.DueWindow) {
	for _, w := range windows {
		if is(w) {
			those = append(those, w)
		} else {
			others = append(others, w)
		}
	}
	return others, those
}

// carriesLost is the error of periods whose lines have to change and that have
// fewer usage rows than were committed.
func carriesLost(lost []store.DueWindow) []error {
	if len(lost) == 0 {
		return nil
	}
	first := lost[0]
	return []error{&ratebatch.HaltError{Scope: first.Scope, Period: ratebatch.Period{Begin: first.First, End: first.Until},
		Err:  fmt.Errorf("what was used before it in the month changed, but it has fewer usage rows than were committed (%d such periods): it keeps its lines", len(lost)),
		Hint: "'ratebatch status --late' lists them; restore their usage and rate them again with 'ratebatch reprocess', or, while their month is open, forget what was rated with 'ratebatch reset'"}}
}

// carryLook is one look at what changed.
type carryLook struct {
	now             time.Time // the server's time
	scopes, changed uint64
}

// Unsettled counts the periods of a month whose lines have to change because what
// was used before them has: a run that died, or another shard, has not rated them
// again yet. To freeze them would freeze the wrong tier, minimum or cap.
func (j *Job) Unsettled(ctx context.Context, month ratebatch.Month) (int, error) {
	t, err := j.readTerms(ctx)
	if err != nil {
		return 0, err
	}
	tiered, err := t.tiered()
	if err != nil || len(tiered) == 0 {
		return 0, err
	}
	changed, _, err := j.changedCarries(ctx, tiered)
	n := 0
	for _, w := range changed {
		if month.Contains(w.First) {
			n++
		}
	}
	return n, err
}

// changedCarries looks at the months of scopes in which something was committed
// since the last look and lists the periods whose lines have to change, one window
// each.
func (j *Job) changedCarries(ctx context.Context, tiered tieredPlans) ([]store.DueWindow, carryLook, error) {
	var look carryLook
	since, now, err := j.Store.CarrySince(ctx)
	if err != nil {
		return nil, look, err
	}
	c := carryCheck{tiered: tiered, calendar: j.Options.Calendar}
	if err := j.Store.CarryStates(ctx, since, j.Options.Calendar.Zone().String(), c.visit); err != nil {
		return nil, look, err
	}
	if err := j.settleDoubts(ctx, &c, now); err != nil {
		return nil, look, err
	}
	for _, digest := range c.unknown {
		j.Log.WarnContext(ctx, "commits by a plan that is not stored", "digest", digest)
	}
	if len(c.changed) > 0 {
		j.Log.InfoContext(ctx, "carry-in changed", "periods", len(c.changed), "first", c.changed[0].First, jobs.KeyScope, c.changed[0].Scope)
	}
	return c.changed, carryLook{now, c.scopes, uint64(len(c.changed))}, nil
}

// carryCheck adds up a month of a scope, commit by commit.
type carryCheck struct {
	tiered   tieredPlans
	calendar ratebatch.Calendar

	scope   string
	month   time.Time
	used    map[string]decimal.Decimal // by account
	charged map[string]decimal.Decimal // by currency
	usages  uint64                     // usage rows
	scopes  uint64
	changed []store.DueWindow
	doubts  []doubt // of periods that are not in changed
	unknown []string
}

// doubt is an account of a period whose lines change only if one of them has a
// quantity of 0 or less: of those the commit says nothing.
type doubt struct {
	window  store.DueWindow
	metric  string
	account string
	tariff  *hashmap.Tariff
	is      decimal.Decimal
}

// charged is the account of a month's money, in the last period's commit.
const chargedAccount = "(charged)"

func (c *carryCheck) visit(x store.CarryState) {
	if x.Scope != c.scope || !x.Month.Equal(c.month) {
		c.scope, c.month = x.Scope, x.Month
		c.used, c.charged = map[string]decimal.Decimal{}, map[string]decimal.Decimal{}
		c.usages = 0
		c.scopes++
	}
	c.usages += x.UsageRows
	p := c.tiered[x.PlanDigest]
	window := store.DueWindow{Scope: x.Scope, First: x.Begin, Until: x.End}
	differs := false
	var doubts []doubt
	for account, was := range x.CarryIn {
		if p == nil {
			if !slices.Contains(c.unknown, x.PlanDigest) {
				c.unknown = append(c.unknown, x.PlanDigest)
			}
			break
		}
		if account == chargedAccount {
			differs = differs || p.chargesDiffer(x, was, c.charged[x.Currency], c.usages > 0)
			continue
		}
		is := c.used[account]
		if was.Equal(is) {
			continue
		}
		name, t := p.tariff(x, account)
		switch {
		case t == nil: // priced by tiers that the plan does not have: look again
			differs = true
		case tariffDiffers(t, was, is, x.Used[account]):
			differs = true
		case edgeDiffers(t, was, is, x.Used[account]):
			doubts = append(doubts, doubt{window, name, account, t, is})
		}
	}
	if p != nil && !differs {
		differs = c.lacksCharge(p, x)
	}
	if differs {
		c.changed = append(c.changed, window)
	} else {
		c.doubts = append(c.doubts, doubts...)
	}
	for account, q := range x.Used {
		if account != chargedAccount {
			c.used[account] = c.used[account].Add(q)
		}
	}
	c.charged[x.Currency] = c.charged[x.Currency].Add(x.Total)
}

// lacksCharge says whether the commit is of a month's last period and was made
// before the month's money was looked at, as when the length of a period changed, or
// when the month had no usage yet.
func (c *carryCheck) lacksCharge(p *tieredPlan, x store.CarryState) bool {
	_, has := x.CarryIn[chargedAccount]
	if has || c.usages == 0 || !c.calendar.Named(c.month).To.Equal(x.End) {
		return false
	}
	return !closing(monthCharges(p.plan, x.Begin), x.Scope, c.charged[x.Currency].Add(x.Total)).IsZero()
}

// tariff is what prices an account's usage in a period, and its metric.
func (p *tieredPlan) tariff(x store.CarryState, account string) (string, *hashmap.Tariff) {
	for _, name := range p.metrics {
		if t := p.evaluator.Tariff(name, x.Scope, x.Begin); t != nil && t.Holds(name, account) {
			return name, t
		}
	}
	return "", nil
}

// tariffDiffers says whether a period's lines change when its account begins
// with another quantity than at its commit, but for what edgeDiffers finds.
func tariffDiffers(t *hashmap.Tariff, was, is, used decimal.Decimal) bool {
	if t.Kind == plan.Volume {
		old, now := t.Last(was.Add(used)), t.Last(is.Add(used))
		if old != now {
			return true
		}
		a, adjusted := t.Adjustment(t.Last(was), old, was)
		b, adjusts := t.Adjustment(t.Last(is), now, is)
		return adjusted != adjusts || adjusts && (a.Rule != b.Rule || !was.Equal(is))
	}
	first, last := t.Next(was), t.Next(is)
	if first != last {
		return true
	}
	// Within one tier before and now, or cut at another place.
	return used.IsPositive() && (t.Last(was.Add(used)) != first || t.Last(is.Add(used)) != last)
}

// edgeDiffers says whether a period that lies within one tier ended exactly at
// its edge and does no longer, or does now: a quantity of 0 or less that comes
// last in the period then has the price of another tier.
func edgeDiffers(t *hashmap.Tariff, was, is, used decimal.Decimal) bool {
	return t.Kind == plan.Graduated && t.Next(was.Add(used)) != t.Next(is.Add(used))
}

// settleDoubts reads the lines of the periods that the commits leave open; few
// ever end exactly at an edge.
func (j *Job) settleDoubts(ctx context.Context, c *carryCheck, now time.Time) error {
	for _, d := range c.doubts {
		if n := len(c.changed); n > 0 && c.changed[n-1] == d.window {
			continue // by another account
		}
		w := store.ExportWindow{From: d.window.First, To: d.window.Until, AsOf: now}
		lines, err := j.Store.TieredLines(ctx, w, d.window.Scope, d.window.First, d.metric)
		if err != nil {
			return err
		}
		if d.differs(lines) {
			c.changed = append(c.changed, d.window)
		}
	}
	slices.SortFunc(c.changed, func(a, b store.DueWindow) int {
		return cmp.Or(strings.Compare(a.Scope, b.Scope), a.First.Compare(b.First))
	})
	return nil
}

// differs prices the account's lines again from what it begins with now.
func (d *doubt) differs(lines []store.FoundLine) bool {
	var rows []hashmap.TierRow
	rules := map[string]int{} // of the lines of 0 or less: each row of them has one line
	for i := range lines {
		l := &lines[i]
		if l.Part >= hashmap.AdjustmentPart || l.Bucket != "" && (l.Bucket != string(hashmap.Rejected) || l.Rule != hashmap.OutOfRange) {
			continue
		}
		if !d.draws(l) {
			continue
		}
		rows = append(rows, hashmap.TierRow{Region: l.Region, Resource: l.Resource, Attributes: l.Attributes, Qty: l.Qty})
		if !l.Qty.IsPositive() {
			rules[l.Rule]++
		}
	}
	if len(rules) == 0 {
		return false
	}
	// All rows are of one account, whatever its attributes are called.
	one := *d.tariff
	one.Per = plan.PerScope
	again, _ := one.Price(d.metric, hashmap.JoinParts(rows), map[string]decimal.Decimal{d.metric: d.is})
	for _, l := range again {
		if !l.Qty.IsPositive() {
			rules[l.Rule]--
		}
	}
	for _, n := range rules {
		if n != 0 {
			return true
		}
	}
	return false
}

// draws says whether a line draws on the account. Lines do not repeat what
// follows from their scope and begin, by which there can be accounts too.
func (d *doubt) draws(l *store.FoundLine) bool {
	of := metric.Metric{ScopeKey: d.tariff.Per}
	if d.tariff.Per == plan.PerScope || d.tariff.Per == plan.PerResource || d.account != d.metric+"/"+d.tariff.Per+"="+l.Scope {
		of.ScopeKey = ""
	}
	return d.tariff.Account(d.metric, l.Resource, of.WithImplied(l.Attributes, l.Scope, l.Begin)) == d.account
}

// chargesDiffer says whether a month's minimum or cap comes to another amount
// when the month came to another before its last period, or to none when the month
// has no usage any more.
func (p *tieredPlan) chargesDiffer(x store.CarryState, was, is decimal.Decimal, used bool) bool {
	own := x.Used[chargedAccount]
	m := monthCharges(p.plan, x.Begin)
	now := decimal.Zero
	if used {
		now = closing(m, x.Scope, is.Add(own))
	}
	return !closing(m, x.Scope, was.Add(own)).Equal(now)
}
