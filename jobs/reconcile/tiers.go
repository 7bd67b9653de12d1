package reconcile

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch/hashmap"
	"github.com/ratebatch/ratebatch/ratebatch/metric"
	"github.com/ratebatch/ratebatch/ratebatch/plan"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// A line of tiers has no price of its own: it depends on the lines of its period
// that draw on the account before it, and on the month before. So of a line that
// was drawn the whole period is priced again: its account is added up from the
// month's lines, in order; the parts are put together to usage rows again; and
// the evaluator cuts and prices those. Lines, unit prices and what the commit says
// that the period used must come out the same. What a commit says of the month
// before it is not compared: where a change of it changes no line, the commit
// stays as it is.

// maxTieredPeriods bounds how many periods of tiered prices a run prices again.
// Each reads the lines of a metric in the period, and those of one account in
// the month before it.
const maxTieredPeriods = 50

// tieredPeriod is a metric in a period of a scope.
type tieredPeriod struct {
	scope, metric string
	begin         time.Time
}

// tiers prices the periods of drawn lines again.
func (j *Job) tiers(ctx context.Context, r *Report, w store.ExportWindow, t *terms, drawn []*store.DrawnLine, seed uint64) error {
	const step, what = "usage → prices", "periods of tiered prices drawn, and those of the same lines again"
	seen := map[tieredPeriod]bool{}
	var periods, same uint64
	note := ""
	for _, l := range drawn {
		p := tieredPeriod{l.Scope, l.Metric, l.Begin}
		if seen[p] || periods == maxTieredPeriods {
			continue
		}
		seen[p] = true
		periods++
		wrong, err := j.tieredPeriod(ctx, w, t, l)
		if err != nil {
			return err
		}
		if wrong == "" {
			same++
		} else if note == "" {
			note = fmt.Sprintf("%s of scope %s at %s: %s: 'ratebatch explain --scope %q --begin %s --metric %s' (drawn with seed %d); after a reset or a broken run 'ratebatch rate' mends it",
				l.Metric, l.Scope, l.Begin.Format(time.RFC3339), wrong, l.Scope, l.Begin.Format(time.RFC3339), l.Metric, seed)
		}
	}
	if periods > 0 {
		compare(r, step, what, periods, same, note)
	}
	return nil
}

// tieredPeriod prices the period of a line again and says what differs.
func (j *Job) tieredPeriod(ctx context.Context, w store.ExportWindow, t *terms, drawn *store.DrawnLine) (string, error) {
	e, m, _, err := t.evaluator(drawn)
	if err != nil {
		return "", err
	}
	before, wrong, err := j.carryIn(ctx, w, t, e, m, drawn)
	if wrong != "" || err != nil {
		return wrong, err
	}
	lines, err := j.Store.TieredLines(ctx, w, drawn.Scope, drawn.Begin, drawn.Metric)
	if err != nil {
		return "", err
	}
	// Rows of one key have the same facts, and lines are compared by texts.
	var parts []hashmap.TierRow
	was := map[string]string{}
	for i := range lines {
		l := &lines[i]
		was[tierKey(l.Metric, l.Region, l.Resource, l.Attributes, l.Part)] = tierText(l.Qty, l.Price, l.Rule, l.Bucket)
		if l.Part < hashmap.AdjustmentPart {
			parts = append(parts, hashmap.TierRow{Region: l.Region, Resource: l.Resource, Attributes: l.Attributes, Facts: m.WithImplied(l.Attributes, l.Scope, l.Begin), Qty: l.Qty})
		}
	}
	rows := hashmap.JoinParts(parts)
	again, used := e.PriceTiers(drawn.Metric, drawn.Scope, drawn.Begin, rows, before.in)
	now := map[string]string{}
	for i := range again {
		l := &again[i]
		rule := l.Rule
		if l.Bucket == hashmap.Rejected {
			rule = l.Reason
		}
		key := ""
		if l.Row >= 0 {
			key = tierKey(drawn.Metric, l.Region, rows[l.Row].Resource, rows[l.Row].Attributes, uint16(l.Part))
		} else {
			key = tierKey(plan.AdjustmentMetric, l.Region, "", adjusted(drawn.Metric, l.Account), hashmap.AdjustmentPart)
		}
		now[key] = tierText(l.Qty, l.Price, rule, string(l.Bucket))
	}
	return before.differs(was, now, used), nil
}

// adjusted are the attributes of an adjustment.
func adjusted(metric, account string) map[string]string {
	out := map[string]string{"metric": metric}
	if per, of, ok := strings.Cut(strings.TrimPrefix(account, metric+"/"), "="); ok && account != metric {
		out[per] = of
	}
	return out
}

func tierKey(metric, region, resource string, attributes map[string]string, part uint16) string {
	text := fmt.Sprintf("%s of %q in region %q, part %d", metric, resource, region, part)
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		text += fmt.Sprintf(", %s %q", name, attributes[name])
	}
	return text
}

func tierText(qty, price decimal.Decimal, rule, bucket string) string {
	text := fmt.Sprintf("%s for %s", qty, price)
	if rule != "" {
		text += " by " + rule
	}
	return text + ", " + bucketName(bucket)
}

// carried is what a commit says of the accounts of a metric.
type carried struct{ in, used map[string]decimal.Decimal }

// differs names the first line or account that is not the same again.
func (c *carried) differs(was, now map[string]string, used map[string]decimal.Decimal) string {
	for _, key := range slices.Sorted(maps.Keys(now)) {
		if was[key] == "" {
			return fmt.Sprintf("%s is missing: %s", key, now[key])
		}
		if was[key] != now[key] {
			return fmt.Sprintf("%s was rated %s and is %s", key, was[key], now[key])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(was)) {
		if now[key] == "" {
			return fmt.Sprintf("%s was rated %s and is no line", key, was[key])
		}
	}
	for _, account := range slices.Sorted(maps.Keys(used)) {
		if !c.used[account].Equal(used[account]) {
			return fmt.Sprintf("the commit says that account %s used %s, its lines say %s", account, c.used[account], used[account])
		}
	}
	return ""
}

// carryIn is what the accounts of a line's metric had before its period: that of
// the line by the month's lines, the others by the commit. A text says why the
// lines do not tell.
func (j *Job) carryIn(ctx context.Context, w store.ExportWindow, t *terms, e *hashmap.Evaluator, m *metric.Metric, drawn *store.DrawnLine) (carried, string, error) {
	c := carried{map[string]decimal.Decimal{}, map[string]decimal.Decimal{}}
	states, err := j.Store.CommitCarries(ctx, drawn.Scope, drawn.Begin, drawn.RunID)
	if err != nil {
		return c, "", err
	}
	tariff := e.Tariff(drawn.Metric, drawn.Scope, drawn.Begin)
	if tariff == nil {
		return c, "", nil
	}
	for _, s := range states {
		if tariff.Holds(drawn.Metric, s.Account) {
			c.in[s.Account], c.used[s.Account] = s.Before, s.InThis
		}
	}
	facts := m.WithImplied(drawn.Attributes, drawn.Scope, drawn.Begin)
	account := tariff.Account(drawn.Metric, drawn.Resource, facts)
	of := store.Account{Scope: drawn.Scope, Metric: drawn.Metric, Per: tariff.Per, Before: drawn.Begin, OutOfRange: hashmap.OutOfRange}
	switch tariff.Per {
	case plan.PerScope:
	case plan.PerResource:
		of.Value = drawn.Resource
	default:
		of.Value = facts[tariff.Per]
	}
	uses, err := j.Store.AccountLines(ctx, w, of)
	if err != nil {
		return c, "", err
	}
	sum := decimal.Zero
	for _, u := range uses {
		other := store.DrawnLine{Plan: u.Plan, Metrics: u.Metrics}
		other.Metric = drawn.Metric
		e, m, ok, err := t.evaluator(&other)
		if err != nil {
			return c, "", err
		}
		if !ok {
			return c, fmt.Sprintf("what account %s used before it cannot be told: the plan or metrics of %s are not stored", account, u.Begin.Format(time.RFC3339)), nil
		}
		x := e.Tariff(drawn.Metric, drawn.Scope, u.Begin)
		if x == nil || x.Per != tariff.Per {
			continue // an account of another kind
		}
		if !u.Named && m.WithImplied(nil, drawn.Scope, u.Begin)[tariff.Per] != of.Value {
			continue
		}
		sum = sum.Add(u.Used)
	}
	c.in[account] = sum
	return c, "", nil
}
