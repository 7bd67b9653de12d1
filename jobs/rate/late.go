package rate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/jobs"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/metric"
	"github.com/ratebatch/ratebatch/ratebatch/sqltext"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// What happens to usage that arrived behind its commit.
const (
	Hold      = "hold"      // list it and leave the period as it is
	Reprocess = "reprocess" // rate the period again at the next revision
	Ignore    = "ignore"    // note it, list it no more
)

// LatePolicy says what happens to late usage by the age of its period: the
// first rule that is old enough decides.
type LatePolicy []LateRule

// LateRule is for periods that ended less than Until ago; zero: of any age.
type LateRule struct {
	Until  time.Duration
	Action string
}

// ParseLatePolicy reads reprocess:48h,hold:40d,ignore; empty is hold.
func ParseLatePolicy(text string) (LatePolicy, error) {
	if text == "" {
		return LatePolicy{{Action: Hold}}, nil
	}
	var out LatePolicy
	for part := range strings.SplitSeq(text, ",") {
		action, age, limited := strings.Cut(strings.TrimSpace(part), ":")
		rule := LateRule{Action: action}
		var err error
		if limited {
			rule.Until, err = parseAge(age)
		}
		if err != nil || !slices.Contains([]string{Hold, Reprocess, Ignore}, action) || limited && rule.Until <= 0 {
			return nil, &ratebatch.ConfigError{Err: fmt.Errorf("late policy %q", part), Hint: "write reprocess:48h,hold:40d,ignore, for example: actions are hold, reprocess and ignore"}
		}
		if n := len(out); n > 0 && (out[n-1].Until == 0 || limited && rule.Until <= out[n-1].Until) {
			return nil, &ratebatch.ConfigError{Err: fmt.Errorf("late policy %q: %q is never reached", text, part), Hint: "order the rules by age, the one without an age last"}
		}
		out = append(out, rule)
	}
	return out, nil
}

func parseAge(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		d, err := time.ParseDuration(days + "h")
		return 24 * d, err
	}
	return time.ParseDuration(text)
}

func (p LatePolicy) action(age time.Duration) string {
	for _, rule := range p {
		if rule.Until == 0 || age < rule.Until {
			return rule.Action
		}
	}
	return Hold
}

// LateResult is what a look found.
type LateResult struct {
	Candidates  uint64                     `json:"candidates"`
	Late        uint64                     `json:"late"`
	Lost        uint64                     `json:"lost"`
	Reprocessed uint64                     `json:"reprocessed"`
	Difference  map[string]decimal.Decimal `json:"difference"` // by currency, of late usage by the plans that its periods were rated with

	failed  int   // scopes that could not be looked at
	failing error // why
}

// maxLooks bounds how many scopes that cannot be read a look goes around.
const maxLooks = 100

// maxLateWindows bounds the statement that rates what was found.
const maxLateWindows = 100_000

// Look finds usage that arrived behind its commit: from tier rows refreshed
// since the last look, never by reading history again. It prices what it finds,
// notes it, and rates again what the policy says. Fewer usage rows than were
// committed are an alarm and change nothing.
func (j *Job) Look(ctx context.Context, run *jobs.Run) (LateResult, error) {
	result := LateResult{Difference: map[string]decimal.Decimal{}}
	x, err := j.readTermsInForce(ctx)
	if err != nil {
		return result, err
	}
	look, err := j.Store.LateSince(ctx)
	if err != nil {
		return result, err
	}
	if look.Since.Unix() <= 0 {
		return result, nil // nothing was ever committed
	}
	look.Tables, look.Period = x.terms.tables(j.Options.Period), j.Options.Period
	if err := j.Store.FindDays(ctx, &look); err != nil {
		return result, err
	}
	days, others, err := j.Store.LateDays(ctx, look)
	if err != nil {
		return result, err
	}
	if others > 0 {
		// Their months are closed: the length changes only when no open one is rated.
		j.Log.WarnContext(ctx, "usage arrived in periods of another length", "periods", others, "hint", "it is not compared with what was billed: that length has to be in force again for it ('ratebatch settings set period')")
	}
	plan := &Plan{terms: x.terms}
	if len(days) > 0 {
		from, to := days[0].Day, days[len(days)-1].Day.AddDate(0, 0, 1)
		rows, err := j.Store.TierRows(ctx, x.terms.metricsOf(j.Options.Period), j.Options.Period, from, to)
		if err != nil {
			return result, err
		}
		for _, c := range chunks(days, rows, x.terms.edges(from, to, j.Options.Period), j.Options.passLimit()) {
			if err := j.lookAround(ctx, plan, look, c, x, nil, &result); err != nil {
				return result, err
			}
		}
	}
	if result.failing != nil {
		// What the scope has is late as long as nobody has looked: the next look
		// begins where this one did.
		j.Log.WarnContext(ctx, "look not noted", jobs.KeyRunID, run.ID, "error", result.failing)
	} else if err := j.Store.NoteLook(ctx, look, result.Candidates, result.Late, result.Lost); err != nil {
		return result, err
	} else if err := j.settleLooks(ctx); err != nil {
		return result, err
	}
	if result.Lost > 0 {
		j.Log.ErrorContext(ctx, "usage lost", jobs.KeyRunID, run.ID, "periods", result.Lost, "hint", "see 'ratebatch status --late'")
	}
	again, err := j.lateAgain(ctx, look, x.closed)
	if err != nil {
		return result, err
	}
	return result, errors.Join(result.failing, j.rateLate(ctx, x.terms, again, run, &result))
}

// lookAround is lookAt that goes around scopes whose rows cannot be read: it
// looks at halves of the scopes, nil being those with usage, until such a scope
// stands alone, and notes its failure.
func (j *Job) lookAround(ctx context.Context, plan *Plan, look store.LateLook, c chunk, x *state, scopes []string, result *LateResult) error {
	cause := j.lookAt(ctx, plan, look, c, x.closed, result)
	if !store.IsOfRows(cause) || result.failed >= maxLooks {
		return thrown(cause)
	}
	if scopes == nil {
		usages, err := j.Store.ScopeUsages(ctx, x.terms.tables(time.Hour), x.open)
		if err != nil {
			return errors.Join(thrown(cause), err)
		}
		for _, u := range usages {
			scopes = append(scopes, u.Scope)
		}
		slices.Sort(scopes)
		scopes = slices.Compact(scopes)
	}
	if len(scopes) == 0 {
		return thrown(cause)
	}
	if len(scopes) == 1 {
		result.failed++
		cause = halted(thrown(cause))
		result.failing = errors.Join(result.failing, fmt.Errorf("late usage of scope %s, all others were looked at: %w", scopes[0], cause))
		return j.Store.NoteFailure(ctx, store.ScopeFailure{Scope: scopes[0], Begin: c.from, Error: cause.Error()}, uuid.Nil)
	}
	// By name, so that scopes without usage in open months are in a half too.
	middle := len(scopes) / 2
	for _, half := range []struct {
		condition string
		scopes    []string
	}{{"scope < ", scopes[:middle]}, {"scope >= ", scopes[middle:]}} {
		part := look
		part.Filter = half.condition + sqltext.String(scopes[middle])
		if look.Filter != "" {
			part.Filter = look.Filter + " AND " + part.Filter
		}
		if err := j.lookAround(ctx, plan, part, c, x, half.scopes, result); err != nil {
			return err
		}
	}
	return nil
}

// lateAgain lists the periods that the policy says to rate again, of all the
// findings that stand: those of a run that died before it rated them too, and
// those that an earlier policy held.
func (j *Job) lateAgain(ctx context.Context, look store.LateLook, closed []ratebatch.Month) ([]store.DueWindow, error) {
	open, err := j.Store.LateOpen(ctx)
	if err != nil {
		return nil, err
	}
	oldest, _, err := j.Store.OldestRatable(ctx, j.Options.Now, j.Options.Period)
	if err != nil {
		return nil, err
	}
	scopes, err := j.Store.ScopeStates(ctx)
	if err != nil {
		return nil, err
	}
	var again []store.DueWindow
	for _, f := range open {
		if f.Kind == "late" && isActive(scopes, f.Scope) && !f.Begin.Before(oldest) && j.lateAction(f, closed) == Reprocess {
			again = append(again, store.DueWindow{Scope: f.Scope, First: f.Begin, Until: f.End, Again: look.Now})
		}
	}
	return merge(again), nil
}

// lateAction is what happens to a finding now. A closed month is corrected by a
// person's word only, and lost usage is never rated again.
func (j *Job) lateAction(f store.LateFinding, closed []ratebatch.Month) string {
	action := j.Options.Late.action(j.Options.Now.Sub(f.End))
	if f.Kind == "lost" || action == Reprocess && slices.ContainsFunc(closed, func(m ratebatch.Month) bool { return m.Contains(f.Begin) }) {
		return Hold
	}
	return action
}

// rateLate rates again what the policy says. Nobody asked for it by name: months
// that are closed, now or by then, are left alone.
func (j *Job) rateLate(ctx context.Context, t terms, again []store.DueWindow, run *jobs.Run, result *LateResult) error {
	var rejected error
	for part := range slices.Chunk(again, maxLateWindows) {
		next := &Plan{terms: t, late: true, reason: "late usage", windows: part}
		if err := j.due(ctx, next, nil); err != nil {
			return err
		}
		rated, err := j.Run(ctx, next, run)
		result.Reprocessed += rated.Periods
		if err != nil && ratebatch.ExitCode(err) != ratebatch.ExitRejected {
			return err
		}
		rejected = errors.Join(rejected, err)
	}
	return rejected
}

// lookAt compares the usage of one chunk's candidates with their commits and
// notes what differs.
func (j *Job) lookAt(ctx context.Context, plan *Plan, look store.LateLook, c chunk, closed []ratebatch.Month, result *LateResult) error {
	a, err := j.pricing(ctx, plan, c, "a look for late usage")
	if err != nil {
		return err
	}
	set, digest, err := a.metrics()
	if err != nil {
		return err
	}
	usage, err := usageOfAll(set, metric.UsageOptions{Period: a.ids.Period, Attributes: true, Filter: look.Filter})
	if err != nil {
		return err
	}
	if err := j.Store.InsertLatePeriods(ctx, a.ids, look, digest, usage, a.query()); err != nil {
		return err
	}
	found, err := j.Store.LateFound(ctx, a.ids, digest)
	if err != nil {
		return err
	}
	summary, err := j.Store.PassSummary(ctx, a.ids)
	if err != nil {
		return err
	}
	result.Candidates += summary.Periods + summary.Lost
	if len(found) == 0 {
		return nil
	}
	if err := j.priceLate(ctx, plan, c, found); err != nil {
		return err
	}
	for i := range found {
		f := &found[i]
		if f.FoundFingerprint == f.CommittedFingerprint {
			f.Action = Ignore // what was found before is no more
			continue
		}
		f.Action = j.lateAction(*f, closed)
		if f.Kind == "lost" {
			result.Lost++
			continue
		}
		result.Late++
		result.Difference[f.Currency] = result.Difference[f.Currency].Add(f.Difference())
	}
	return j.Store.NoteLate(ctx, a.ids.ID, found)
}

// merge joins windows of a scope that follow each other; they are sorted.
func merge(windows []store.DueWindow) []store.DueWindow {
	var out []store.DueWindow
	for _, w := range windows {
		if n := len(out); n > 0 && out[n-1].Scope == w.Scope && out[n-1].Until.Equal(w.First) && out[n-1].Again.Equal(w.Again) {
			out[n-1].Until = w.Until
			continue
		}
		out = append(out, w)
	}
	return out
}

// pricing is an attempt that only prices: it is void before it writes a line.
func (j *Job) pricing(ctx context.Context, plan *Plan, c chunk, why string) (*attempt, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	a := &attempt{pass: &pass{job: j, plan: plan, chunk: c}, ids: store.Pass{ID: id, From: c.from, To: c.to, Period: j.Options.Period}}
	return a, j.Store.PriceOnly(ctx, id, why)
}

// priceLate fills in what the periods found would cost now: by the plan that
// each was rated with, which is what the late usage is worth, and by the plan in
// force now, whose difference is not the late usage's.
func (j *Job) priceLate(ctx context.Context, plan *Plan, c chunk, found []store.LateFinding) error {
	byPlan := map[string][]int{} // findings by the digest of their plan
	var replaced []int           // those whose plan is another one now
	for i, f := range found {
		if f.Kind != "late" {
			continue
		}
		byPlan[f.PlanDigest] = append(byPlan[f.PlanDigest], i)
		if now := store.InForce(plan.terms.plans, f.Begin, f.End)[0].Version; now != nil && now.Digest != f.PlanDigest && now.Currency == f.Currency {
			replaced = append(replaced, i)
		}
	}
	for _, digest := range slices.Sorted(maps.Keys(byPlan)) {
		rated := *plan
		k := slices.IndexFunc(plan.terms.plans, func(v store.Version) bool { return v.Digest == digest })
		if k < 0 {
			return &ratebatch.HaltError{Err: fmt.Errorf("late usage: the rate plan %.12s that periods were rated with is not there", digest), Hint: "someone removed it from rate_plans; apply the same file again with --from and --to in the past"}
		}
		v := plan.terms.plans[k]
		v.ValidFrom, v.ValidTo = time.Unix(0, 0).UTC(), store.OpenEnd
		rated.terms.plans = []store.Version{v}
		err := j.priceFindings(ctx, &rated, c, found, byPlan[digest], func(f *store.LateFinding, total decimal.Decimal) { f.FoundTotal, f.PlanTotal = total, total })
		if err != nil {
			return err
		}
	}
	return j.priceFindings(ctx, plan, c, found, replaced, func(f *store.LateFinding, total decimal.Decimal) { f.PlanTotal = total })
}

// priceFindings prices some of the periods found by the plan's terms.
func (j *Job) priceFindings(ctx context.Context, plan *Plan, c chunk, found []store.LateFinding, which []int, set func(*store.LateFinding, decimal.Decimal)) error {
	var windows []store.DueWindow
	for _, i := range which {
		f := found[i]
		windows = append(windows, store.DueWindow{Scope: f.Scope, First: f.Begin, Until: f.End, Again: j.Options.Now.AddDate(100, 0, 0)})
	}
	for part := range slices.Chunk(merge(windows), maxLateWindows) {
		a, err := j.pricing(ctx, plan, c, "what late usage would cost")
		if err != nil {
			return err
		}
		a.windows, a.part = part, true
		prices, err := a.prices(ctx)
		if err != nil {
			return err
		}
		for _, i := range which {
			if total, ok := prices[found[i].Scope][found[i].Begin]; ok {
				set(&found[i], total)
			}
		}
	}
	return nil
}

// prices is what the windows of an attempt that only prices would cost.
func (a *attempt) prices(ctx context.Context) (map[string]map[time.Time]decimal.Decimal, error) {
	s := a.pass.job.Store
	set, digest, err := a.metrics()
	if err != nil {
		return nil, err
	}
	usage, err := usageOfAll(set, metric.UsageOptions{Period: a.ids.Period, Attributes: true, Filter: a.filter()})
	if err != nil {
		return nil, err
	}
	if err := s.InsertPassPeriods(ctx, a.ids, a.windows, nil, digest, usage, a.query()); err != nil {
		return nil, err
	}
	summary, err := s.PassSummary(ctx, a.ids)
	if err != nil {
		return nil, err
	}
	p, err := a.writeLines(ctx, set, summary)
	if err != nil {
		return nil, err
	}
	if err := p.readBack(ctx); err != nil {
		return nil, err
	}
	return s.LatePrices(ctx, a.ids)
}

// tables are those that the metrics in any set read.
func (t terms) tables(period time.Duration) []store.UsageTable {
	var out []store.UsageTable
	for _, set := range t.sets {
		for _, m := range set.Metrics {
			u := store.UsageTable{Table: m.Tables(period)[0], Scope: m.ScopeKey, Region: m.RegionKey, Time: m.Time, Tier: m.Tiered()}
			if !slices.Contains(out, u) {
				out = append(out, u)
			}
		}
	}
	slices.SortFunc(out, func(a, b store.UsageTable) int { return strings.Compare(a.Table+a.Scope, b.Table+b.Scope) })
	return out
}

// metricsOf counts, per table, how many metrics read it: those of the set that
// has most.
func (t terms) metricsOf(period time.Duration) map[string]int {
	out := map[string]int{}
	for _, set := range t.sets {
		of := map[string]int{}
		for _, m := range set.Metrics {
			of[m.Tables(period)[0]]++
		}
		for table, n := range of {
			out[table] = max(out[table], n)
		}
	}
	return out
}

// UsageTables are the tables that the metrics in any version read.
func (j *Job) UsageTables(ctx context.Context) ([]store.UsageTable, error) {
	t, err := j.readMetrics(ctx)
	return t.tables(j.Options.Period), err
}
