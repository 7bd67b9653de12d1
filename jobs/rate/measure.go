package rate

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/ratebatch/metric"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// Measurement holds, run by run, what a pass over the same usage costs with
// and without pricing, and with and without removing repeats.
type Measurement struct {
	UsageRows             uint64
	Forms                 []string        // arithmetic of each metric
	Carries               time.Duration   // what accounts of tiers had before each period; part of Fold
	Fold                  time.Duration   // finding the combinations and pricing each once
	Rating, Copy          []time.Duration // INSERT … SELECT of the pass, and the same with constants for prices
	CopyPlain             []time.Duration // the copy over usage whose repeats are not removed
	Fingerprint, Readback time.Duration   // the checks of one pass
}

// Measure times the statements of one pass over all due periods, if asked also
// those of CopyPlain. What it writes is void and is removed again.
func (j *Job) Measure(ctx context.Context, runs int, withPlain bool) (Measurement, error) {
	var out Measurement
	plan, err := j.Plan(ctx)
	if err != nil {
		return out, err
	}
	if len(plan.chunks) != 1 {
		return out, fmt.Errorf("the usage to measure needs %d passes, not one", len(plan.chunks))
	}
	c := plan.chunks[0]
	id, err := uuid.NewV7()
	if err != nil {
		return out, err
	}
	a := &attempt{pass: &pass{job: j, plan: plan, chunk: c}, ids: store.Pass{ID: id, From: c.from, To: c.to, Period: j.Options.Period}}
	if err := j.Store.PriceOnly(ctx, id, "measured only"); err != nil {
		return out, err
	}
	set := plan.terms.sets[store.InForce(plan.terms.metrics, c.from, c.to)[0].Version.Digest]
	usage, err := usageOfAll(set, metric.UsageOptions{Period: j.Options.Period, Attributes: true})
	if err != nil {
		return out, err
	}
	started := time.Now()
	if err := j.Store.InsertPassPeriods(ctx, a.ids, plan.windows, nil, set.Digest(), usage, a.query()); err != nil {
		return out, err
	}
	out.Fingerprint = time.Since(started)
	summary, err := j.Store.PassSummary(ctx, a.ids)
	if err != nil {
		return out, err
	}
	out.UsageRows = summary.UsageRows
	p, err := newPricer(a, set, summary)
	if err != nil {
		return out, err
	}
	started = time.Now()
	if err := p.fold(ctx); err != nil {
		return out, err
	}
	out.Fold = time.Since(started)
	for _, mp := range p.metrics {
		if mp.rows > 0 {
			out.Forms = append(out.Forms, mp.metric.Name+": "+mp.expression.Form)
			if mp.tiers != nil {
				out.Carries += mp.tiers.took
			}
		}
	}
	rating := p.statement()
	for _, mp := range p.metrics {
		mp.tiers = nil
		mp.expression.Inner = "1 AS c_"
		mp.expression.Columns = "toDecimal128('0', 18) AS price, '' AS rule, '' AS bucket"
		mp.expression.Known = "1"
	}
	copied := p.statement()
	// Only FINAL tells the two apart: both read, group and write the same.
	plain := strings.ReplaceAll(copied, " FINAL", "")
	insert := func(body string) (time.Duration, error) {
		if err := j.Store.Exec(ctx, "truncate_rated_lines", nil); err != nil {
			return 0, err
		}
		started := time.Now()
		err := j.Store.InsertLines(ctx, a.ids, body, summary.Threads, a.query())
		return time.Since(started), err
	}
	for range runs {
		for _, x := range []struct {
			body string
			to   *[]time.Duration
		}{{copied, &out.Copy}, {plain, &out.CopyPlain}, {rating, &out.Rating}} {
			if x.to == &out.CopyPlain && !withPlain {
				continue
			}
			took, err := insert(x.body)
			if err != nil {
				return out, err
			}
			*x.to = append(*x.to, took)
		}
	}
	started = time.Now()
	if err := j.Store.InsertPassLines(ctx, a.ids, a.query()); err != nil {
		return out, err
	}
	out.Readback = time.Since(started)
	return out, j.Store.Exec(ctx, "truncate_rated_lines", nil)
}
