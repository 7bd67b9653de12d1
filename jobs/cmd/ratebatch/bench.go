package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/exporter/exportbench"
	"github.com/ratebatch/ratebatch/fixtures/bench"
	"github.com/ratebatch/ratebatch/fixtures/simulate"
	"github.com/ratebatch/ratebatch/jobs/rate"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/engine"
	"github.com/ratebatch/ratebatch/ratebatch/engine/enginebench"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// benchSize says how much work each benchmark does.
type benchSize struct {
	scopes, instances int
	hours             int // a month's, of state and the catch-up
	ratedHours        int // of the rate benchmarks
	apiInstances      int
	runs              int
	tierHours         int // of seven metrics
	engineRows        int
	growth            growth
	exported          exportbench.Cloud
}

// benchSizes: the full size is the one that the limits are promised for; the middle
// one takes minutes and shows the same ratios.
var benchSizes = map[string]benchSize{
	"quick":  {scopes: 50, instances: 20, hours: 24, ratedHours: 24, apiInstances: 1_000, runs: 3, tierHours: 12, engineRows: 50_000, growth: growthQuick, exported: exportbench.MonthQuick},
	"middle": {scopes: 500, instances: 40, hours: 96, ratedHours: 96, apiInstances: 10_000, runs: 5, tierHours: 8, engineRows: 500_000, growth: growthMiddle, exported: exportbench.Cloud{Month: "2026-03", Scopes: 100, Resources: 20, Hours: 480}},
	"full":   {scopes: 500, instances: 40, hours: 720, ratedHours: 480, apiInstances: 50_000, runs: 5, tierHours: 32, engineRows: 1_000_000, growth: growthFull, exported: exportbench.Month},
}

// suite is one group of figures, some of which are series too.
type suite struct {
	name string
	run  func(ctx context.Context, p *program, dir string, size benchSize) ([]bench.Figure, []bench.Series, error)
}

type figuresOnly func(ctx context.Context, p *program, dir string, size benchSize) ([]bench.Figure, error)

func (f figuresOnly) run(ctx context.Context, p *program, dir string, size benchSize) ([]bench.Figure, []bench.Series, error) {
	figures, err := f(ctx, p, dir, size)
	return figures, nil, err
}

var suites = []suite{
	{"engine", figuresOnly(benchEngine).run},
	{"kafka", figuresOnly(benchKafka).run},
	{"ingest", figuresOnly(benchIngest).run},
	{"agent", figuresOnly(benchAgent).run},
	{"storage", figuresOnly(benchStorage).run},
	{"rate", figuresOnly(benchRate).run},
	{"peer", figuresOnly(benchPeer).run},
	{"rules", figuresOnly(benchRules).run},
	{"tiers", figuresOnly(benchTiers).run},
	{"growth", benchGrowth},
	{"history", figuresOnly(benchHistory).run},
	{"catchup", figuresOnly(benchCatchup).run},
	{"state", figuresOnly(benchState).run},
	{"export", figuresOnly(benchExport).run},
	{"api", figuresOnly(benchAPI).run},
}

func suiteNames() string {
	names := make([]string, len(suites))
	for i, s := range suites {
		names[i] = s.name
	}
	return strings.Join(names, ", ")
}

func newBenchCmd(p *program) *cobra.Command {
	var quick, full bool
	var only, out string
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure, as ratios in one run, and write bench/results.json",
		Long: `Bench works on the embedded engine in a folder of its own and removes it again.
Figures are ratios to something measured in the same run, so another machine's
speed does not matter; limits are those the project promises.

` + exitCodesHelp,
		Example: "  ratebatch bench\n  ratebatch bench --quick --only rate",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			size := "middle"
			switch {
			case quick && full:
				return &ratebatch.ConfigError{Err: errors.New("--quick and --full")}
			case quick:
				size = "quick"
			case full:
				size = "full"
			}
			return p.bench(cmd.Context(), size, only, out)
		},
	}
	cmd.Flags().BoolVar(&quick, "quick", false, "every benchmark once, small: that none rots")
	cmd.Flags().BoolVar(&full, "full", false, "the sizes that the limits are promised for: half an hour")
	cmd.Flags().StringVar(&only, "only", "", "only this group: "+suiteNames())
	cmd.Flags().StringVar(&out, "out", "bench/results.json", "where to write the figures")
	return cmd
}

func (p *program) bench(ctx context.Context, size, only, out string) error {
	report := bench.Report{Version: version, At: p.now().UTC(), Size: size, Machine: bench.ThisMachine()}
	found := false
	var failed error
	for _, s := range suites {
		if only != "" && only != s.name {
			continue
		}
		found = true
		started := p.now()
		fmt.Fprintf(p.stderr, "bench %s …\n", s.name)
		dir, err := os.MkdirTemp("", "ratebatch-bench-")
		if err != nil {
			return err
		}
		figures, series, err := s.run(ctx, p, dir, benchSizes[size])
		if err = errors.Join(err, removeLeft(dir)); err != nil { // the other groups' figures are worth printing
			failed = errors.Join(failed, fmt.Errorf("bench %s: %w", s.name, err))
			fmt.Fprintf(p.stderr, "bench %s failed: %v\n", s.name, err)
			if ctx.Err() != nil {
				break
			}
			continue
		}
		report.Figures, report.Series = append(report.Figures, figures...), append(report.Series, series...)
		fmt.Fprintf(p.stderr, "bench %s: %.1f s\n", s.name, p.now().Sub(started).Seconds())
	}
	if !found {
		return &ratebatch.ConfigError{Err: fmt.Errorf("no group of benchmarks is called %q", only), Hint: "the groups are " + suiteNames()}
	}
	m := report.Machine
	fmt.Fprintf(p.stdout, "ratebatch %s, size %s, %s on %d × %s, %d MiB\n", report.Version, size, m.System, m.CPUs, m.CPU, m.MemoryMiB)
	if err := bench.Print(p.stdout, report.Figures); err != nil {
		return err
	}
	return errors.Join(failed, report.Write(out))
}

// removeLeft removes a group's folder. An engine ends by itself a moment after
// its last client has left, and writes into its folder until then.
func removeLeft(dir string) error {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		if err := os.RemoveAll(dir); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

func benchEngine(ctx context.Context, _ *program, dir string, size benchSize) ([]bench.Figure, error) {
	some, err := enginebench.Run(ctx, enginebench.Options{Dir: filepath.Join(dir, "data"), Rows: size.engineRows, Runs: size.runs})
	out := make([]bench.Figure, len(some))
	for i, f := range some {
		out[i] = bench.Figure(f)
	}
	return out, err
}

// benchPlan has 20 mappings and 5 thresholds over 40 flavors.
func benchPlan(cost func(i int) string) []byte {
	var b strings.Builder
	b.WriteString("currency: EUR\ngroups: [base]\nservices:\n  - name: instance\n    fields:\n      - name: flavor_name\n        mappings:\n")
	for i := range 20 {
		fmt.Fprintf(&b, "          - {value: flavor-%02d, type: flat, cost: %q}\n", i*2, cost(i))
	}
	b.WriteString("    mappings:\n      - {type: flat, cost: \"0.01\", group: base}\n    thresholds:\n")
	for i := range 5 {
		fmt.Fprintf(&b, "      - {level: \"0.%d\", type: rate, cost: \"0.9%d\", group: base}\n", i+1, i)
	}
	return []byte(b.String())
}

// benchMetrics is the one metric of the rate benchmarks.
func benchMetrics(factor string) []byte {
	return []byte(`metrics:
  instance:
    unit: instance
    table: instance_metrics
    quantity: time
    factor: ` + factor + `
    groupby: [user_id, flavor_name, vcpus, image_id]
    metadata: [instance_name]
`)
}

// benchDatabase hands a fresh, migrated database that keeps data of any year
// to use.
func benchDatabase(ctx context.Context, p *program, dir string, use func(*engine.Engine, *store.Store) error) (err error) {
	e, err := engine.Open(ctx, engine.Options{DataDir: filepath.Join(dir, "data"), Database: "bench", Create: true, Log: p.log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	s := store.New(e.Conn(), e.Database())
	keep := store.Retention{Raw: demoRetention, FiveMin: demoRetention, Hourly: demoRetention}
	if _, err := s.Migrate(ctx, store.MigrateOptions{Retention: keep}); err != nil {
		return err
	}
	return use(e, s)
}

func benchStorage(ctx context.Context, p *program, dir string, _ benchSize) (figures []bench.Figure, err error) {
	err = benchDatabase(ctx, p, dir, func(_ *engine.Engine, s *store.Store) error {
		figures, err = simulate.Storage(ctx, s)
		return err
	})
	return figures, err
}

func benchExport(ctx context.Context, p *program, dir string, size benchSize) (figures []bench.Figure, err error) {
	err = benchDatabase(ctx, p, dir, func(e *engine.Engine, _ *store.Store) error {
		figures, err = exportbench.Measure(ctx, e, filepath.Join(dir, "files"), size.exported, size.runs)
		return err
	})
	return figures, err
}

func benchRate(ctx context.Context, p *program, dir string, size benchSize) (figures []bench.Figure, err error) {
	err = benchDatabase(ctx, p, dir, func(e *engine.Engine, s *store.Store) error {
		figures, err = measureRate(ctx, p, e, s, size)
		return err
	})
	return figures, err
}

func measureRate(ctx context.Context, p *program, e *engine.Engine, s *store.Store, size benchSize) (figures []bench.Figure, err error) {
	if err := bench.HourlyUsage(ctx, e.Conn(), size.scopes, size.instances, size.ratedHours, 40); err != nil {
		return nil, err
	}
	if err := completeUntil(ctx, s, bench.UsageBegin.Add(time.Duration(size.ratedHours)*time.Hour)); err != nil {
		return nil, err
	}
	// What removing repeats costs is beside a limit, and the middle size says it.
	withPlain := size.ratedHours <= 96
	simple, err := measurePlan(ctx, p, s, size, benchPlan(func(i int) string { return fmt.Sprintf("0.%02d", i+1) }), benchMetrics("1"), time.Unix(0, 0), withPlain)
	if err != nil {
		return nil, err
	}
	rounded, err := measurePlan(ctx, p, s, size, benchPlan(func(i int) string { return fmt.Sprintf("0.0000%024d", 1234567890123456789+i) }), benchMetrics("1/1048576"), time.Unix(1, 0), false)
	if err != nil {
		return nil, err
	}
	figure := func(name string, a, b []time.Duration, limit float64) bench.Figure {
		median, spread := bench.Median(a)
		return bench.Figure{Name: name, Value: median.Seconds(), Unit: "s", Ratio: bench.MedianRatio(a, b), Limit: limit, Runs: len(a), Spread: spread}
	}
	p.log.DebugContext(ctx, "rate benchmark", "rows", simple.UsageRows, "forms", simple.Forms, "rounded_forms", rounded.Forms, "fold", simple.Fold, "fingerprint", simple.Fingerprint, "readback", simple.Readback)
	copied, spread := bench.Median(simple.Copy)
	figures = []bench.Figure{
		figure("rate_vs_copy", simple.Rating, simple.Copy, 1.3),
		figure("rate_rounded_vs_copy", rounded.Rating, rounded.Copy, 1.4),
		{Name: "copy", Value: float64(simple.UsageRows) / copied.Seconds(), Unit: "rows/s", Runs: len(simple.Copy), Spread: spread},
	}
	if withPlain {
		figures = append(figures, figure("dedup_vs_plain", simple.Copy, simple.CopyPlain, 0))
	}
	return figures, nil
}

// measurePlan times a pass by this plan and metric set, if asked also the copy of
// usage whose repeats are not removed.
func measurePlan(ctx context.Context, p *program, s *store.Store, size benchSize, planBody, metricsBody []byte, from time.Time, withPlain bool) (rate.Measurement, error) {
	if err := addVersions(ctx, s, planBody, metricsBody, from); err != nil {
		return rate.Measurement{}, err
	}
	job := &rate.Job{Store: s, Log: p.log, Options: benchOptions(bench.UsageBegin.Add(time.Duration(size.ratedHours) * time.Hour))}
	job.Options.MaxPassRows = 1 << 40
	return job.Measure(ctx, size.runs, withPlain)
}

// benchOptions are those of a rate two days after usage is complete.
func benchOptions(until time.Time) rate.Options {
	return rate.Options{Now: until.Add(48 * time.Hour), Period: time.Hour, WaitPeriods: 2, First: rate.FirstPeriod{Kind: "usage"}}
}

// completeUntil says that usage is complete until then.
func completeUntil(ctx context.Context, s *store.Store, until time.Time) error {
	return s.SetWatermark(ctx, store.Watermark{Region: "RegionOne", CompleteUntil: until, Source: "operator"}, "bench")
}

// addVersions stores a plan and a metric set in force from then on.
func addVersions(ctx context.Context, s *store.Store, planBody, metricsBody []byte, from time.Time) error {
	for _, x := range []struct {
		v    versioned
		body []byte
	}{{planVersions(), planBody}, {metricVersions(), metricsBody}} {
		if err := addVersion(ctx, s, x.v, x.body, from); err != nil {
			return err
		}
	}
	return nil
}

func addVersion(ctx context.Context, s *store.Store, v versioned, body []byte, from time.Time) error {
	digest, currency, _, err := v.read("bench.yaml", body)
	if err != nil {
		return err
	}
	_, err = s.AddVersion(ctx, v.kind, store.Version{Digest: digest, Body: string(body), Currency: currency, ValidFrom: from})
	return err
}
