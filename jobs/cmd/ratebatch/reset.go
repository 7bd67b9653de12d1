package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/ratebatch/ratebatch/jobs"
	"github.com/ratebatch/ratebatch/jobs/reset"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

func newResetCmd(p *program) *cobra.Command {
	var o reset.Options
	var jo jobOptions
	var to, now string
	var yes, dryRun bool
	var period time.Duration
	cmd := &cobra.Command{
		Use:   "reset (--scope ID … | --all) --to TIME --reason TEXT",
		Short: "Forget what was rated from a time on; the next rate starts exactly there",
		Long: `Reset writes a commit of kind reset for every rated period that begins at --to or
later, so none of them counts any more and all of them are due again. Nothing is
removed: what counted before stays readable until 'ratebatch retention'. A time
before the first rated period forgets everything.

Periods of a closed month, and periods older than their tier keeps usage, are
refused (exit 20): they could not be rated again.

` + exitCodesHelp,
		Example: `  ratebatch reset --scope 5f2c… --to 2026-11-05T00:00:00Z --reason "ticket 812: wrong flavor" --yes
  ratebatch reset --all --to 2026-11-01 --reason "new metrics" --dry-run`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := momentFlags(momentFlag{"to", to, &o.To}, momentFlag{"now", now, &o.Now}); err != nil {
				return err
			}
			if o.Now.IsZero() {
				o.Now = p.now()
			}
			o.Author = author()
			o.Period = period
			if period == 0 {
				o.Period = 5 * time.Minute // the rest is checked before the database is asked
			}
			if err := errors.Join(o.Validate(), jo.validate()); err != nil {
				return err
			}
			return p.withStore(cmd.Context(), func(ctx context.Context, s *store.Store) error {
				b, err := readBilling(ctx, s)
				if err != nil {
					return err
				}
				if o.Period, err = b.length(period); err != nil {
					return err
				}
				job := &reset.Job{Store: s, Log: p.log, Options: o}
				return p.reset(ctx, job, jo, yes, dryRun)
			})
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&o.Scopes, "scope", nil, "scope to reset; may be given several times")
	f.BoolVar(&o.All, "all", false, "reset every scope but disabled ones")
	f.StringVar(&to, "to", "", "forget the periods that begin at this moment or later (RFC 3339 or a date, UTC)")
	f.DurationVar(&period, "period", 0, "length of a period (default: that of earlier runs)")
	f.StringVar(&o.Reason, "reason", "", "why (mandatory); it is kept with every period")
	f.StringVar(&now, "now", "", "judge retention at this moment instead of the clock's")
	f.BoolVar(&yes, "yes", false, "do not ask")
	f.BoolVar(&dryRun, "dry-run", false, "print what would be forgotten and write nothing")
	jo.addFlags(cmd)
	return cmd
}

func (p *program) reset(ctx context.Context, job *reset.Job, jo jobOptions, yes, dryRun bool) error {
	plan, err := job.Plan(ctx)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("%d periods", plan.Periods)
	if plan.First != nil {
		what += " from " + plan.First.Format(time.RFC3339) + " on"
	}
	if dryRun {
		return p.print(plan, func() {
			fmt.Fprintln(p.stdout, "would forget "+what)
			p.sayLeft(plan)
		})
	}
	if plan.Periods > 0 && !yes {
		if err := p.confirm("forget " + what); err != nil {
			return err
		}
	}
	var result reset.Result
	err = p.underLease(ctx, job.Store, "reset", "rate", jo, func(ctx context.Context, run *jobs.Run) (map[string]string, error) {
		if plan, err = job.Plan(ctx); err != nil { // it may have waited
			return nil, err
		}
		var err error
		result, err = job.Run(ctx, plan, run.ID)
		return map[string]string{"periods": fmt.Sprint(result.Periods)}, err
	})
	if err != nil {
		return err
	}
	return p.print(result, func() {
		if result.Periods == 0 {
			fmt.Fprintln(p.stdout, "nothing is rated from there on")
		} else {
			rowf(p.stdout, "forgot %s; the next rate starts there\n", what)
		}
		p.sayLeft(plan)
	})
}

// sayLeft names the scopes that a reset of all left alone.
func (p *program) sayLeft(plan *reset.Plan) {
	if len(plan.Left) > 0 {
		rowf(p.stdout, "left alone, because disabled scopes are not rated again: %s\n", strings.Join(plan.Left, ", "))
	}
}

// confirm asks a person; without a terminal it refuses.
func (p *program) confirm(what string) error {
	in, ok := p.stdin.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return &ratebatch.ConfigError{Err: fmt.Errorf("to %s needs a yes", what), Hint: "add --yes, or look first with --dry-run"}
	}
	fmt.Fprintf(p.stderr, "%s? [y/N] ", what)
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if answer := strings.ToLower(strings.TrimSpace(line)); answer != "y" && answer != "yes" {
		return &ratebatch.ConfigError{Err: errors.New("not confirmed; nothing was written")}
	}
	return nil
}

// momentFlag is a flag with a moment in it, or nothing.
type momentFlag struct {
	name, text string
	to         *time.Time
}

// momentFlags reads all of them and reports every one that is none.
func momentFlags(flags ...momentFlag) error {
	var errs []error
	for _, f := range flags {
		if f.text == "" {
			continue
		}
		var err error
		if *f.to, err = parseMoment(f.name, f.text); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
