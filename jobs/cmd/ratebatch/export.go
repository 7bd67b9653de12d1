package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/exporter"
	"github.com/ratebatch/ratebatch/exporter/bucket"
	bucketfile "github.com/ratebatch/ratebatch/exporter/bucket/file"
	"github.com/ratebatch/ratebatch/jobs"
	"github.com/ratebatch/ratebatch/jobs/export"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

type exportOptions struct {
	month     string
	to        string
	datasets  []string
	format    string
	partition string
	partial   bool
	dryRun    bool
	grace     time.Duration
	workers   int
}

func (o *exportOptions) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.month, "month", "", "month to export, such as 2026-11 (required)")
	f.StringVar(&o.to, "to", "", "where to: a folder or file:///folder (required)")
	f.StringSliceVar(&o.datasets, "dataset", []string{"lines"}, "datasets to export: "+strings.Join(exporter.Datasets(), ", "))
	f.StringVar(&o.format, "format", "parquet", "format of the files: parquet")
	f.StringVar(&o.partition, "partition", "day", "how rows are spread over files: day, scope or none")
	f.BoolVar(&o.partial, "partial", false, "export although periods are not committed yet; the manifest says so")
	f.BoolVar(&o.dryRun, "dry-run", false, "print what would be written and write nothing")
	f.DurationVar(&o.grace, "grace", export.DefaultGrace, "how long a delivery that was replaced stays readable")
	f.IntVar(&o.workers, "workers", 0, "files written at the same time; 0: one per processor, at most 4")
}

func (o *exportOptions) options(now time.Time) (export.Options, error) {
	month, err := time.Parse("2006-01", o.month)
	if err != nil {
		return export.Options{}, &ratebatch.ConfigError{Err: fmt.Errorf("--month %q", o.month), Hint: "write it as 2026-11"}
	}
	return export.Options{Month: month, Datasets: o.datasets, Format: o.format, Partition: exporter.Partition(o.partition), Partial: o.partial,
		Grace: o.grace, Workers: o.workers, Now: now.UTC(), Version: version}, nil
}

// openBucket gives the place that --to names.
func openBucket(_ context.Context, to string) (bucket.Bucket, error) {
	scheme, rest, found := strings.Cut(to, "://")
	switch {
	case to == "":
		return nil, &ratebatch.ConfigError{Err: fmt.Errorf("--to is not given"), Hint: "name a folder"}
	case !found:
		return bucketfile.New(to)
	case scheme == "file":
		return bucketfile.New(rest)
	}
	return nil, &ratebatch.ConfigError{Err: fmt.Errorf("--to %s://…", scheme), Hint: "use a folder or file:///folder"}
}

func newExportCmd(p *program) *cobra.Command {
	var o exportOptions
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write a rated month to files for finance",
		Long: `Export writes the rated lines of a month as Parquet files and, last, a
manifest that names them with checksums and totals. Each commit's line count,
key digest and total is compared with the rows that were read; on any
difference nothing is published and the exit code is 20. When the current
delivery holds the same state already, nothing is written.

` + exitCodesHelp,
		Example: `  ratebatch export --month 2026-11 --to /srv/finance
  ratebatch export --month 2026-11 --to /srv/finance --partition scope --output json
  ratebatch export --month 2026-11 --to /srv/finance --dry-run`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options, err := o.options(p.now())
			if err != nil {
				return err
			}
			to, err := openBucket(cmd.Context(), o.to)
			if err != nil {
				return err
			}
			return p.withStore(cmd.Context(), func(ctx context.Context, s *store.Store) error {
				return p.export(ctx, &export.Job{Store: s, Bucket: to, Log: p.log, Options: options}, o.dryRun)
			})
		},
	}
	o.addFlags(cmd)
	return cmd
}

func (p *program) export(ctx context.Context, job *export.Job, dryRun bool) error {
	results, err := p.runExport(ctx, job, dryRun)
	if len(results) == 0 {
		return err
	}
	if printErr := p.print(results, func() { printExports(p, results) }); printErr != nil && err == nil {
		return printErr
	}
	return err
}

// runExport does one export and notes it in the run log. It takes no lease:
// two exports of the same state write the same bytes.
func (p *program) runExport(ctx context.Context, job *export.Job, dryRun bool) ([]exporter.Result, error) {
	if err := job.Store.CheckSchema(ctx); err != nil {
		return nil, err
	}
	if dryRun {
		return job.Plan(ctx)
	}
	run, err := jobs.Start(ctx, job.Store, "export", os.Args[1:], version, p.now())
	if err != nil {
		return nil, err
	}
	results, err := job.Run(ctx, run.ID)
	if endErr := run.End(ctx, export.Counts(results), err); endErr != nil {
		p.log.WarnContext(ctx, "run log", jobs.KeyRunID, run.ID, "error", endErr)
	}
	return results, err
}

func printExports(p *program, results []exporter.Result) {
	for _, r := range results {
		switch {
		case r.DryRun:
			fmt.Fprintf(p.stdout, "%s %s: %d commits would be exported as delivery %s\n", r.Dataset, r.Month, r.Commits, r.Delivery)
		case r.Unchanged:
			fmt.Fprintf(p.stdout, "%s %s: delivery %s holds this state already, nothing was written\n", r.Dataset, r.Month, r.Delivery)
		default:
			fmt.Fprintf(p.stdout, "%s %s: %d rows of %d commits in %d files, %.1f MB\n", r.Dataset, r.Month, r.Rows, r.Commits, r.Files, float64(r.Bytes)/1e6)
		}
		w := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
		for _, currency := range slices.Sorted(mapKeys(r.Totals)) {
			fmt.Fprintf(w, "total\t%s %s\n", r.Totals[currency], currency)
		}
		if r.Partial {
			fmt.Fprintf(w, "partial\t%d scopes have uncommitted periods\n", len(r.Missing))
		}
		fmt.Fprintf(w, "manifest\t%s/%s\n", r.Location, r.Manifest)
		w.Flush()
	}
}
