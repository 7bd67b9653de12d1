package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"
	"github.com/spf13/cobra"

	bucketfile "github.com/ratebatch/ratebatch/exporter/bucket/file"
	"github.com/ratebatch/ratebatch/fixtures/bitbrains"
	"github.com/ratebatch/ratebatch/fixtures/plans"
	"github.com/ratebatch/ratebatch/jobs/export"
	"github.com/ratebatch/ratebatch/jobs/rate"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/engine"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// demoRetention keeps readings of 2013: nothing is shifted in time.
const demoRetention = 20 * 365 * 24 * time.Hour

// demo runs the whole way of the data once, on real readings.
type demo struct {
	*program
	folder string
	steps  int
}

func newDemoCmd(p *program) *cobra.Command {
	d := &demo{program: p}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Load a real month of usage, rate it, export it and show what it cost",
		Long: `Demo runs the main job on real readings of a hosting provider's virtual machines
(August and September 2013): samples, tiers, one rating pass over all scopes,
commits, and Parquet files that are read back by another reader. Everything
stays in the folder demo/ (data and export); running it again repeats nothing
that is done.

` + exitCodesHelp,
		Example: "  ratebatch demo\n  ratebatch --data demo/data status",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return d.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&d.folder, "folder", "demo", "where to keep data and export")
	return cmd
}

// step runs one step and prints it with its time.
func (d *demo) step(name string, do func() (string, error)) error {
	d.steps++
	started := d.now()
	if isTerminal(d.stdout) {
		fmt.Fprintf(d.stdout, "%d. %s …", d.steps, name)
	}
	text, err := do()
	if isTerminal(d.stdout) {
		fmt.Fprint(d.stdout, "\r\x1b[K")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	fmt.Fprintf(d.stdout, "%d. %-36s %6.1f s  %s\n", d.steps, name, d.now().Sub(started).Seconds(), text)
	return nil
}

func (d *demo) run(ctx context.Context) error {
	started := d.now()
	if !d.given["clickhouse"] { // a server that is configured is not for readings of 2013
		d.program.engine.URL = ""
		d.program.engine.DataDir = filepath.Join(d.folder, "data")
	}
	d.program.engine.Create = true
	var e *engine.Engine
	err := d.step("start the embedded ClickHouse engine", func() (string, error) {
		var err error
		if e, err = engine.Open(ctx, d.program.engine); err != nil {
			return "", err
		}
		return "ClickHouse " + e.Version() + " at " + e.Address(), nil
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	s := store.New(e.Conn(), e.Database())
	if err := d.load(ctx, s); err != nil {
		return err
	}
	if err := d.rate(ctx, s); err != nil {
		return err
	}
	total, err := d.export(ctx, e, s)
	if err != nil {
		return err
	}
	if err := d.show(ctx, s, total); err != nil {
		return err
	}
	fmt.Fprintf(d.stdout, "\ndone in %.1f s; the files are in %s\n", d.now().Sub(started).Seconds(), filepath.Join(d.folder, "export"))
	fmt.Fprintf(d.stdout, `
try next:
  bin/ratebatch --data %[1]s/data status
  bin/ratebatch --data %[1]s/data rate              # nothing is due
  bin/ratebatch --data %[1]s/data plan show
  bin/ratebatch --data %[1]s/data engine sql -q "SELECT metric, sum(price) FROM rated GROUP BY metric"
`, d.folder)
	return nil
}

func (d *demo) load(ctx context.Context, s *store.Store) error {
	err := d.step("create the tables", func() (string, error) {
		keep := store.Retention{Raw: demoRetention, FiveMin: demoRetention, Hourly: demoRetention}
		result, err := s.Migrate(ctx, store.MigrateOptions{Retention: keep})
		return fmt.Sprintf("%d migrations applied, schema version %d", len(result.Applied), result.Version), err
	})
	if err != nil {
		return err
	}
	err = d.step("load a real month of usage", func() (string, error) {
		r, err := bitbrains.Load(ctx, s, bitbrains.Options{})
		return fmt.Sprintf("%d samples of %d instances in %d projects", r.Instances+r.Ports+r.Disks, r.VMs, r.Projects), err
	})
	if err != nil {
		return err
	}
	return d.step("apply a rate plan", func() (string, error) {
		v := planVersions()
		digest, currency, _, err := v.read("demo.yaml", plans.Demo)
		if err != nil {
			return "", err
		}
		versions, err := s.Versions(ctx, v.kind)
		if err != nil {
			return "", err
		}
		next := store.Version{Digest: digest, Body: string(plans.Demo), Currency: currency, Author: author(), Note: "demo", ValidFrom: time.Unix(0, 0).UTC(), ValidTo: store.OpenEnd}
		if !unchanged(versions, next) {
			if _, err := s.AddVersion(ctx, v.kind, next); err != nil {
				return "", err
			}
		}
		return fmt.Sprintf("digest %.12s, prices in %s", digest, currency), nil
	})
}

func (d *demo) rate(ctx context.Context, s *store.Store) error {
	return d.step("rate all ready periods of all scopes", func() (string, error) {
		job := &rate.Job{Store: s, Log: d.log, Options: rate.Options{
			Now: d.now().UTC(), Period: time.Hour, WaitPeriods: 2, First: rate.FirstPeriod{Kind: "month"}, Author: author()}}
		result, err := d.runRate(ctx, job, jobOptions{})
		if err != nil {
			return "", err
		}
		if result.Periods == 0 {
			return "nothing is due", nil
		}
		return fmt.Sprintf("%d periods of %d scopes, %d lines in %d pass", result.Periods, result.Scopes, result.Lines, result.Passes), nil
	})
}

// demoMonths are the months that the readings lie in.
var demoMonths = []time.Time{time.Date(2013, 8, 1, 0, 0, 0, 0, time.UTC), time.Date(2013, 9, 1, 0, 0, 0, 0, time.UTC)}

// export writes Parquet, reads it back with the engine's own Parquet reader,
// and compares the sum with the commits'. It returns that sum.
func (d *demo) export(ctx context.Context, e *engine.Engine, s *store.Store) (decimal.Decimal, error) {
	folder, err := filepath.Abs(filepath.Join(d.folder, "export"))
	if err != nil {
		return decimal.Zero, err
	}
	var files []string
	err = d.step("write Parquet files, manifest last", func() (string, error) {
		b, err := bucketfile.New(folder)
		if err != nil {
			return "", err
		}
		var rows, size uint64
		for _, month := range demoMonths {
			job := &export.Job{Store: s, Bucket: b, Log: d.log, Options: export.Options{Month: month, Datasets: []string{"lines"}, Format: "parquet",
				Partial: true, Grace: export.DefaultGrace, Now: d.now().UTC(), Version: version}}
			results, err := job.Run(ctx, uuid.New())
			if err != nil {
				return "", err
			}
			for _, r := range results {
				rows, size = rows+r.Rows, size+r.Bytes
				files = append(files, filepath.Join(folder, filepath.Dir(r.Manifest), "delivery="+r.Delivery))
			}
		}
		return fmt.Sprintf("%d lines, %.1f MB", rows, float64(size)/1e6), nil
	})
	if err != nil {
		return decimal.Zero, err
	}
	var committed decimal.Decimal
	err = d.step("read them back with another reader", func() (string, error) {
		statuses, err := s.ScopeStatuses(ctx)
		if err != nil {
			return "", err
		}
		for _, x := range statuses {
			committed = committed.Add(x.Price)
		}
		read, err := sumOfFiles(ctx, e, files)
		if err != nil {
			return "", err
		}
		if !read.Equal(committed) {
			return "", &ratebatch.HaltError{Err: fmt.Errorf("the files sum to %s, the commits to %s", read, committed), Hint: "please report this: it must never happen"}
		}
		return fmt.Sprintf("files and commits both sum to %s EUR", read), nil
	})
	return committed, err
}

// sumOfFiles has the engine, whose Parquet reader shares no code with our
// writer, sum the prices of all files of the deliveries.
func sumOfFiles(ctx context.Context, e *engine.Engine, folders []string) (decimal.Decimal, error) {
	total := decimal.Zero
	for _, folder := range folders {
		var sum decimal.Decimal
		row := e.Conn().QueryRow(e.WithFileAccess(store.WithParams(ctx, store.Params{"files": folder + "/**/*.parquet"})),
			"SELECT sum(toDecimal256(price, 18)) FROM file({files:String}, Parquet)")
		if err := row.Scan(&sum); err != nil {
			return total, err
		}
		total = total.Add(sum)
	}
	return total, nil
}

// show prints price per project and metric.
func (d *demo) show(ctx context.Context, s *store.Store, total decimal.Decimal) error {
	prices, err := s.MetricPrices(ctx, demoMonths[0], demoMonths[len(demoMonths)-1].AddDate(0, 1, 0))
	if err != nil {
		return err
	}
	fmt.Fprintln(d.stdout)
	printPrices(d.stdout, prices, total, "EUR")
	return nil
}

// printPrices writes a table of scopes by metrics, rounded to cents for the
// eye; the total is exact.
func printPrices(out io.Writer, prices []store.MetricPrice, total decimal.Decimal, currency string) {
	cell := map[[2]string]decimal.Decimal{}
	scopes, metrics := map[string]decimal.Decimal{}, map[string]decimal.Decimal{}
	for _, x := range prices {
		cell[[2]string{x.Scope, x.Metric}] = x.Price
		scopes[x.Scope] = scopes[x.Scope].Add(x.Price)
		metrics[x.Metric] = metrics[x.Metric].Add(x.Price)
	}
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', tabwriter.AlignRight)
	names := slices.Sorted(mapKeys(metrics))
	fmt.Fprintf(w, "%s\t%s\ttotal\t\n", currency, strings.Join(names, "\t"))
	line := func(label string, of func(metric string) decimal.Decimal, sum decimal.Decimal) {
		fmt.Fprint(w, label, "\t")
		for _, m := range names {
			fmt.Fprint(w, of(m).StringFixedBank(2), "\t")
		}
		fmt.Fprint(w, sum.StringFixedBank(2), "\t\n")
	}
	for _, scope := range slices.Sorted(mapKeys(scopes)) {
		line(scope, func(m string) decimal.Decimal { return cell[[2]string{scope, m}] }, scopes[scope])
	}
	line("total", func(m string) decimal.Decimal { return metrics[m] }, total)
	w.Flush()
	fmt.Fprintf(out, "exact total: %s %s\n", total, currency)
}
