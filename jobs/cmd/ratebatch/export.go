package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/exporter"
	"github.com/ratebatch/ratebatch/exporter/bucket"
	bucketfile "github.com/ratebatch/ratebatch/exporter/bucket/file"
	buckets3 "github.com/ratebatch/ratebatch/exporter/bucket/s3"
	"github.com/ratebatch/ratebatch/jobs"
	"github.com/ratebatch/ratebatch/jobs/export"
	"github.com/ratebatch/ratebatch/jobs/rate"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

type exportOptions struct {
	month     string
	to        string
	datasets  []string
	format    string
	delivery  string
	partition string
	partial   bool
	closed    bool
	dryRun    bool
	grace     time.Duration
	workers   int

	focusVersion string
	operator     string
	roundTo      int32
	signKey      string

	rate rateOptions // which periods a month has, as for close
}

func (o *exportOptions) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.month, "month", "", "month to export, "+monthHelp+" (required)")
	f.StringVar(&o.to, "to", "", "where to: a folder, file:///folder, s3://bucket/prefix?endpoint=…, or - for an Arrow stream of lines on stdout (required)")
	f.StringSliceVar(&o.datasets, "dataset", []string{"lines"}, "datasets to export: "+strings.Join(exporter.Datasets(), ", "))
	f.StringVar(&o.format, "format", "parquet", "format of the files: "+strings.Join(exporter.Formats(), ", "))
	f.StringVar(&o.partition, "partition", "", "how rows are spread over files: day, scope or none (default: day, for statements none)")
	f.StringVar(&o.delivery, "delivery", string(exporter.Overwrite), "overwrite: the whole month in place of the delivery before; append: what is new since the delivery before, lines only")
	f.BoolVar(&o.partial, "partial", false, "export although periods are not committed that could be; the manifest says which")
	f.BoolVar(&o.closed, "closed", false, "export a closed month only; while it is open, write nothing and exit 75")
	f.StringVar(&o.rate.first, "first-period", "", "where the first period of a scope without any commit begins, as for rate")
	f.BoolVar(&o.dryRun, "dry-run", false, "print what would be written and write nothing")
	f.DurationVar(&o.grace, "grace", export.DefaultGrace, "how long a delivery that was replaced stays readable")
	f.StringVar(&o.focusVersion, "focus-version", exporter.FocusVersions()[0], "version of FOCUS for the dataset focus: "+strings.Join(exporter.FocusVersions(), ", "))
	f.StringVar(&o.operator, "operator", envOr("RATEBATCH_OPERATOR", "Cloud operator"), "who runs the cloud, as FOCUS names it [RATEBATCH_OPERATOR]")
	f.Int32Var(&o.roundTo, "round", 2, "digits after the point of a statement's amounts")
	f.StringVar(&o.signKey, "sign-key", os.Getenv("RATEBATCH_SIGN_KEY"), "file with an ed25519 private key (PEM) that signs the manifest [RATEBATCH_SIGN_KEY]")
	f.IntVar(&o.workers, "workers", 0, "files written at the same time; 0: one per processor, at most 2; each takes about 100 MB")
}

func (o *exportOptions) options(now time.Time) (export.Options, error) {
	if err := checkMonth(o.month); err != nil {
		return export.Options{}, err
	}
	var key ed25519.PrivateKey
	if o.signKey != "" {
		text, err := os.ReadFile(o.signKey)
		if err == nil {
			key, err = exporter.ParseSignKey(text)
		}
		if err != nil {
			return export.Options{}, &ratebatch.ConfigError{Err: fmt.Errorf("--sign-key: %w", err), Hint: "make one with 'openssl genpkey -algorithm ed25519'"}
		}
	}
	if o.roundTo < 0 || o.roundTo > 18 {
		return export.Options{}, &ratebatch.ConfigError{Err: fmt.Errorf("--round %d", o.roundTo), Hint: "use 0 to 18"}
	}
	return export.Options{FocusVersion: o.focusVersion, Operator: o.operator, RoundTo: o.roundTo, SignKey: key, Datasets: o.datasets, Format: o.format, Mechanism: exporter.Mechanism(o.delivery), Partition: exporter.Partition(o.partition), Partial: o.partial, Closed: o.closed,
		Grace: o.grace, Workers: o.workers, Now: now.UTC(), Version: version}, nil
}

// setMonth turns --month into a month of the database's calendar.
func (o *exportOptions) setMonth(ctx context.Context, p *program, s *store.Store, out *export.Options) error {
	month, err := p.month(ctx, s, o.month, out.Now)
	out.Month = month.Date
	return err
}

// openBucket gives the place that --to names. The caller calls done.
func openBucket(ctx context.Context, to string) (b bucket.Bucket, done func(), err error) {
	scheme, rest, found := strings.Cut(to, "://")
	switch {
	case to == "":
		return nil, nil, &ratebatch.ConfigError{Err: errors.New("no place to export to is given"), Hint: "name a folder or s3://bucket/prefix"}
	case !found:
		return openFolder(to)
	case scheme == "file":
		return openFolder(rest)
	case scheme == "s3":
		o, err := buckets3.Parse(to)
		if err != nil {
			return nil, nil, &ratebatch.ConfigError{Err: err}
		}
		b, err := buckets3.New(ctx, o)
		if err != nil {
			return nil, nil, err
		}
		return b, b.Close, nil
	}
	return nil, nil, &ratebatch.ConfigError{Err: fmt.Errorf("%s:// is no place to export to", scheme), Hint: "use a folder, file:///folder or s3://bucket/prefix"}
}

// openDelivered gives a place that something was delivered to: a folder that
// does not exist was mistyped.
func openDelivered(ctx context.Context, from string) (bucket.Bucket, func(), error) {
	scheme, folder, found := strings.Cut(from, "://")
	if !found {
		scheme, folder = "file", from
	}
	if scheme == "file" && folder != "" {
		if _, err := os.Stat(folder); err != nil {
			return nil, nil, &ratebatch.ConfigError{Err: fmt.Errorf("no deliveries in %s: %w", folder, err), Hint: "name the place that 'ratebatch export --to' was given"}
		}
	}
	return openBucket(ctx, from)
}

func openFolder(name string) (bucket.Bucket, func(), error) {
	b, err := bucketfile.New(name)
	if err != nil {
		return nil, nil, &ratebatch.ConfigError{Err: err, Hint: "name a folder that this user may write"}
	}
	return b, func() {}, nil
}

func newExportCmd(p *program) *cobra.Command {
	var o exportOptions
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write a rated month to files for finance",
		Long: `Export writes a rated month as files and, last, a manifest that names them with
checksums and totals. Each commit's line count, key digest and total is compared
with the rows that were read; on any difference nothing is published and the
exit code is 20. When the current delivery holds the same state already, nothing
is written. A closed month's files never change.

A delivery is complete (overwrite) or, with --delivery append, holds the lines of
periods that were not delivered to this place yet, and the differences of lines
that were: readers add up all append deliveries. A place keeps to one of the two.

Periods that are due and not committed are refused (exit 75); --partial exports
the rest. The manifest says up to when a month is complete. With --closed an open
month is refused too (exit 75): nothing is delivered before it is billed from.

Datasets: lines (every rated line), summary (scope, day and metric), focus
(FOCUS Cost and Usage), statement (per project, with a printable page each).

` + exitCodesHelp,
		Example: `  ratebatch export --month 2026-11 --to /srv/finance
  ratebatch export --month 2026-11 --to /srv/finance --partition scope --output json
  ratebatch export --month last --closed --to /srv/finance
  ratebatch export --month 2026-11 --to 's3://finance/rated?endpoint=https://s3.example.org' --dataset lines,focus,statement
  ratebatch export --month 2026-11 --to /srv/lake --delivery append
  ratebatch export --month 2026-11 --format arrow --to - > lines.arrows`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options, err := o.options(p.now())
			if err != nil {
				return err
			}
			rating, err := o.rate.options(p.now())
			if err != nil {
				return err
			}
			if o.to == "-" {
				if o.dryRun {
					return &ratebatch.ConfigError{Err: errors.New("--to - has no dry run: the stream is all that it writes"), Hint: "name a folder, or leave --dry-run out"}
				}
				return p.withStore(cmd.Context(), func(ctx context.Context, s *store.Store) error {
					if err := o.setMonth(ctx, p, s, &options); err != nil {
						return err
					}
					return p.exportStream(ctx, s, options, o.expected(p, s, rating))
				})
			}
			to, done, err := openBucket(cmd.Context(), o.to)
			if err != nil {
				return err
			}
			defer done()
			return p.withStore(cmd.Context(), func(ctx context.Context, s *store.Store) error {
				if err := o.setMonth(ctx, p, s, &options); err != nil {
					return err
				}
				return p.export(ctx, &export.Job{Store: s, Bucket: to, Log: p.log, Options: options, Expected: o.expected(p, s, rating)}, o.dryRun)
			})
		},
	}
	o.addFlags(cmd)
	cmd.AddCommand(newExportVerifyCmd(p), newExportSchemaCmd(p))
	return cmd
}

func newExportSchemaCmd(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the manifest",
		Long: `Schema prints the JSON Schema (2020-12) that every manifest is valid by.

` + exitCodesHelp,
		Example: `  ratebatch export schema > manifest.schema.json`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := p.stdout.Write(exporter.ManifestSchema())
			return err
		},
	}
}

// expected gives the scopes that have to be rated in a month, by the rule that
// close goes by: a month that close refuses is not exported as a whole one.
func (o *exportOptions) expected(p *program, s *store.Store, rating rate.Options) expectedScopes {
	return func(ctx context.Context, month ratebatch.Month) ([]store.DueWindow, error) {
		rating, err := o.rate.settle(ctx, s, rating)
		if err != nil {
			return nil, err
		}
		active, _, err := (&rate.Job{Store: s, Log: p.log, Options: rating}).MonthWindows(ctx, month)
		return active, err
	}
}

// expectedScopes gives the scopes that have to be rated in a month.
type expectedScopes = func(context.Context, ratebatch.Month) ([]store.DueWindow, error)

func newExportVerifyCmd(p *program) *cobra.Command {
	var keyFile string
	cmd := &cobra.Command{
		Use:   "verify LOCATION",
		Short: "Check delivered files against their manifests, without ClickHouse",
		Long: `Verify reads every current manifest below a location and checks each file's
size and checksum and, for Parquet, its rows, columns and sums of money. A file
in a delivery's folder that its manifest does not list is a problem: a reader of
the whole folder would count it. With --key the manifests must be signed by that
key.

` + exitCodesHelp,
		Example: `  ratebatch export verify /srv/finance
  ratebatch export verify 's3://finance/rated?endpoint=https://s3.example.org' --key finance.pub --output json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var key ed25519.PublicKey
			if keyFile != "" {
				text, err := os.ReadFile(keyFile)
				if err == nil {
					key, err = exporter.ParseVerifyKey(text)
				}
				if err != nil {
					return &ratebatch.ConfigError{Err: fmt.Errorf("--key: %w", err)}
				}
			}
			b, done, err := openDelivered(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			defer done()
			results, err := exporter.Verify(cmd.Context(), b, key)
			if err != nil {
				return err
			}
			if err := p.print(results, func() { printVerified(p, results) }); err != nil {
				return err
			}
			if len(results) == 0 {
				return &ratebatch.ConfigError{Err: fmt.Errorf("no manifest below %s", b.Location())}
			}
			var bad []string // what is wrong stands on stdout already
			for _, r := range results {
				if len(r.Problems) > 0 {
					bad = append(bad, r.Dataset+" "+r.Month)
				}
			}
			if len(bad) > 0 {
				return &ratebatch.HaltError{Err: fmt.Errorf("%d of %d deliveries are not what their manifests say: %s", len(bad), len(results), strings.Join(bad, ", ")),
					Hint: "do not bill from these files; export the month again"}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&keyFile, "key", "", "file with the ed25519 public key (PEM) that the manifests must be signed with")
	return cmd
}

func printVerified(p *program, results []exporter.Verified) {
	w := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "dataset\tmonth\tfiles\trows\tMB\ttotals\tresult")
	for _, r := range results {
		var totals []string
		for _, currency := range slices.Sorted(mapKeys(r.Totals)) {
			totals = append(totals, r.Totals[currency]+" "+currency)
		}
		result := "as the manifest says"
		if r.Signed {
			result += ", signed"
		}
		if n := len(r.Problems); n > 0 {
			result = fmt.Sprintf("%d problems", n)
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%.1f\t%s\t%s\n", r.Dataset, r.Month, r.Files, r.Rows, float64(r.Bytes)/1e6, strings.Join(totals, ", "), result)
	}
	w.Flush()
	for _, r := range results {
		for _, problem := range r.Problems {
			fmt.Fprintf(p.stdout, "%s: %s\n", r.Manifest, problem)
		}
	}
}

// exportStream writes one dataset as an Arrow stream to stdout. There is no
// manifest, so the stream ends without its end mark when the check of the
// commits fails: a reader sees an error and not a short month.
func (p *program) exportStream(ctx context.Context, s *store.Store, o export.Options, expected expectedScopes) error {
	if o.Mechanism != exporter.Overwrite {
		return &ratebatch.ConfigError{Err: errors.New("--to - has no delivery before that could be added to"), Hint: "leave --delivery out"}
	}
	if o.Format != exporter.Arrow || len(o.Datasets) != 1 {
		return &ratebatch.ConfigError{Err: errors.New("--to - writes one dataset as an Arrow stream"), Hint: "add --format arrow and one --dataset"}
	}
	b, err := readBilling(ctx, s)
	if err != nil {
		return err
	}
	result, err := exporter.Stream(ctx, exporter.Input{Store: s, Dataset: o.Datasets[0], Month: o.Month, Calendar: b.Calendar, Partial: o.Partial, OnlyClosed: o.Closed, Expected: expected, Now: o.Now, Log: p.log,
		FocusVersion: o.FocusVersion, Operator: o.Operator, RoundTo: o.RoundTo}, p.stdout)
	if err == nil {
		p.log.InfoContext(ctx, "streamed", "dataset", result.Dataset, "month", result.Month, "rows", result.Rows, "commits", result.Commits,
			"open", result.Open, "partial", result.Partial, "complete_until", result.CompleteUntil)
	}
	return err
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

// runExport does one export and notes it in the run log. A complete export
// takes no lease: two of the same state write the same bytes, and of two states
// the one that finds the other's manifest starts again. Two append exports
// to one place would both go on from the same delivery, and a reader could take
// in the one that does not stay, so they take turns.
func (p *program) runExport(ctx context.Context, job *export.Job, dryRun bool) (_ []exporter.Result, err error) {
	b, err := readBilling(ctx, job.Store)
	if err != nil {
		return nil, err
	}
	job.Options.Calendar = b.Calendar
	if dryRun {
		return job.Plan(ctx)
	}
	run, err := jobs.Start(ctx, job.Store, "export", os.Args[1:], version, p.now())
	if err != nil {
		return nil, err
	}
	var results []exporter.Result
	defer func() {
		if endErr := run.End(ctx, export.Counts(results), err); endErr != nil {
			p.log.WarnContext(ctx, "run log", jobs.KeyRunID, run.ID, "error", endErr)
		}
	}()
	if job.Options.Mechanism == exporter.Append {
		lease, err := jobs.Acquire(ctx, job.Store, p.log, "append to "+job.Bucket.Location(), run.ID)
		if err != nil {
			return nil, err
		}
		defer func() {
			if err := lease.Release(ctx); err != nil {
				p.log.WarnContext(ctx, "release the lease", "error", err)
			}
		}()
		job.Held = lease.Held
	}
	// An export's live memory is small and its garbage plenty: collecting twice
	// as often keeps the peak below 300 MB and costs some percent of time.
	defer debug.SetGCPercent(debug.SetGCPercent(50))
	results, err = job.Run(ctx, run.ID)
	return results, err
}

func printExports(p *program, results []exporter.Result) {
	for _, r := range results {
		switch {
		case r.Open && r.Partial:
			fmt.Fprintf(p.stdout, "%s is open and partial: all periods are in up to %s\n", r.Month, r.CompleteUntil.Format(time.RFC3339))
		case r.Open:
			fmt.Fprintf(p.stdout, "%s is open: all its periods are in, and may be rated again until it is closed\n", r.Month)
		}
		switch {
		case r.DryRun && r.Increment != nil:
			fmt.Fprintf(p.stdout, "%s %s: append delivery %d would add %d periods and adjust %d\n", r.Dataset, r.Month, r.Increment.Sequence, r.Increment.NewPeriods, r.Increment.Adjusted)
		case r.DryRun:
			fmt.Fprintf(p.stdout, "%s %s: %d commits would be exported as delivery %s\n", r.Dataset, r.Month, r.Commits, r.Delivery)
		case r.Unchanged:
			fmt.Fprintf(p.stdout, "%s %s: delivery %s holds this state already, nothing was written\n", r.Dataset, r.Month, r.Delivery)
		case r.Increment != nil:
			fmt.Fprintf(p.stdout, "%s %s: append delivery %d adds %d periods and adjusts %d: %d rows in %d files, %.1f MB\n", r.Dataset, r.Month, r.Increment.Sequence,
				r.Increment.NewPeriods, r.Increment.Adjusted, r.Rows, r.Files, float64(r.Bytes)/1e6)
		default:
			fmt.Fprintf(p.stdout, "%s %s: %d rows of %d commits in %d files, %.1f MB\n", r.Dataset, r.Month, r.Rows, r.Commits, r.Files, float64(r.Bytes)/1e6)
		}
		w := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
		for _, currency := range slices.Sorted(mapKeys(r.Totals)) {
			fmt.Fprintf(w, "total\t%s %s\n", r.Totals[currency], currency)
		}
		if len(r.Missing) > 0 {
			fmt.Fprintf(w, "behind\t%d scopes lack periods that others have\n", len(r.Missing))
		}
		fmt.Fprintf(w, "manifest\t%s/%s\n", r.Location, r.Manifest)
		w.Flush()
	}
}
