package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/jobs"
	"github.com/ratebatch/ratebatch/jobs/rollup"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

func newRollupCmd(p *program) *cobra.Command {
	var from, to string
	var dryRun, late bool
	cmd := &cobra.Command{
		Use:   "rollup",
		Short: "Recompute the 5-minute and hourly tiers from raw samples",
		Long: `Rollup recomputes both tiers of instances, ports and disks from the distinct
raw samples, for buckets that begin in [--from, --to). Refreshable views do this
all the time; by hand it is for the time after an outage or an import.

Only closed buckets are computed. Buckets older than the raw tier's retention
are left alone, since some of their samples may be gone. Rows that a tier holds
already are not written again, and a row over fewer samples never replaces a
fuller one, so a rollup can be repeated.

With --include-late the samples in late_samples are added to the older buckets,
each once however often it runs. Samples that were stored in time and came again
are left out. So are those that may have been: of the original producer, which
sends no sequence, those whose second lies among the seconds that were stored for
their host in that hour; of any producer, those of hours of which no version of
ratebatch noted what was stored. They stay listed, and the command counts them by
host and hour. 'rate' then finds late usage.

A late sample that reaches beyond the older buckets, or beyond --to, is added in
part: the hours that the raw tier still has whole follow once they have become
old. The command then says from when on, and ends with 75: run it again then.

` + exitCodesHelp,
		Example: `  ratebatch rollup --from 2026-11-01
  ratebatch rollup --from 2026-11-28T06:00:00Z --to 2026-11-29 --dry-run`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			job := rollup.Job{Log: p.log, Now: p.now, Late: late}
			var err error
			if job.From, err = parseInstant("--from", from); err != nil {
				return err
			}
			if to != "" {
				if job.To, err = parseInstant("--to", to); err != nil {
					return err
				}
			}
			return p.withStore(cmd.Context(), func(ctx context.Context, s *store.Store) error {
				job.Store = s
				return p.rollup(ctx, &job, dryRun)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&from, "from", "", "first moment, such as 2026-11-01 or 2026-11-01T06:00:00Z (required); widened to whole hours")
	f.StringVar(&to, "to", "", "end, not included; empty: now")
	f.BoolVar(&late, "include-late", false, "add late samples to buckets older than what the raw tier keeps")
	f.BoolVar(&dryRun, "dry-run", false, "print what would be read and write nothing")
	return cmd
}

// parseInstant reads a day or a moment in UTC.
func parseInstant(flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, &ratebatch.ConfigError{Err: fmt.Errorf("%s is not given", flag), Hint: "write it as 2026-11-01 or 2026-11-01T06:00:00Z"}
	}
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, &ratebatch.ConfigError{Err: fmt.Errorf("%s %q", flag, text), Hint: "write it as 2026-11-01 or 2026-11-01T06:00:00Z"}
}

func (p *program) rollup(ctx context.Context, job *rollup.Job, dryRun bool) error {
	plan, err := job.Plan(ctx)
	if err != nil {
		return err
	}
	if dryRun {
		return p.print(plan, func() {
			fmt.Fprintf(p.stdout, "%s would be rolled up in %d statements\n", ratebatch.Period{Begin: plan.From, End: plan.To}, plan.Statements)
			p.printCounts(plan.Samples, "samples")
		})
	}
	run, err := jobs.Start(ctx, job.Store, "rollup", os.Args[1:], version, p.now())
	if err != nil {
		return err
	}
	bar := p.progress("rollup", int64(plan.Statements), "statements")
	job.Progress = func(r store.RollupProgress) { bar.set(int64(r.Done)) }
	result, err := job.Run(ctx, run.ID, plan)
	bar.done()
	if endErr := run.End(ctx, rollup.Counts(result), err); endErr != nil {
		p.log.WarnContext(ctx, "run log", jobs.KeyRunID, run.ID, "error", endErr)
	}
	if err != nil {
		return err
	}
	err = p.print(result, func() {
		fmt.Fprintf(p.stdout, "rolled up %s\n", ratebatch.Period{Begin: result.From, End: result.To})
		if !result.Before.IsZero() {
			fmt.Fprintf(p.stdout, "buckets before %s were left alone: the raw tier may have lost samples of them\n", result.Before.Format(time.RFC3339))
		}
		p.printCounts(result.Rows, "rows")
		if result.Late != nil {
			p.printLate(result.Late)
		}
	})
	if err != nil || result.Late == nil {
		return err
	}
	return lateInPart(result.Late)
}

// lateInPart is the error of a rollup that could add late samples only in part:
// what it did stays, and the rest is owed.
func lateInPart(late *store.LateRollup) error {
	if late.Partly == 0 {
		return nil
	}
	err := fmt.Errorf("%d late samples reach beyond %s and were added up to there only", late.Partly, late.To.Format(time.RFC3339))
	again := fmt.Sprintf("'ratebatch rollup --from %s --include-late'", late.From.Format(time.RFC3339))
	if late.Rest == nil {
		return &ratebatch.HaltError{Err: err, Hint: "raw samples are kept for ever, so the tiers never take the rest from late ones: set a retention with 'ratebatch migrate --retention raw=54h', then run " + again}
	}
	return &ratebatch.TryAgainError{Err: err, Hint: fmt.Sprintf("the rest can be added from %s on: run %s then", late.Rest.Truncate(time.Second).Format(time.RFC3339), again)}
}

func (p *program) printLate(late *store.LateRollup) {
	if !late.From.Before(late.To) {
		fmt.Fprintln(p.stdout, "late samples: the raw tier has all hours of the window whole, so there are none")
		return
	}
	fmt.Fprintf(p.stdout, "late samples of %s: the tiers have %d of them now, and %d more in part; %d came again and were left out\n", ratebatch.Period{Begin: late.From, End: late.To}, late.Added, late.Partly, late.Again)
	if late.Earlier > 0 {
		fmt.Fprintf(p.stdout, "%d of those that the tiers have begin before %s; what they hold of the hours before is added by a run with an earlier --from\n", late.Earlier, late.From.Format(time.RFC3339))
	}
	if late.Untold == 0 {
		return
	}
	fmt.Fprintf(p.stdout, "of %d nobody can tell whether they were stored in time; they were left out and stay in late_samples:\n", late.Untold)
	for _, x := range late.Details {
		fmt.Fprintf(p.stdout, "%12d samples  region %s, host %s, hour %s\n", x.Samples, x.Region, x.Host, x.Hour.UTC().Format(time.RFC3339))
	}
}

// printCounts prints names and counts, sorted by name.
func (p *program) printCounts(counts map[string]uint64, unit string) {
	for _, name := range slices.Sorted(mapKeys(counts)) {
		fmt.Fprintf(p.stdout, "%12d %s  %s\n", counts[name], unit, name)
	}
}
