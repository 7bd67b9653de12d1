package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/jobs"
	"github.com/ratebatch/ratebatch/jobs/rate"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/plan"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// billing is what bills rest on beside plans and metrics.
type billing struct{ store.Billing }

func readBilling(ctx context.Context, s *store.Store) (billing, error) {
	if err := s.CheckSchema(ctx); err != nil {
		return billing{}, err
	}
	b, err := s.Billing(ctx)
	return billing{b}, err
}

// length is the length of a period: the one asked for, which must be the one
// that bills rest on, or that one.
func (b billing) length(asked time.Duration) (time.Duration, error) {
	switch {
	case asked == 0 && b.Period == 0:
		return time.Hour, nil
	case asked == 0 || asked == b.Period:
		return b.Period, nil
	case b.Period == 0:
		return asked, nil
	}
	x := b.Since[store.SettingPeriod]
	return 0, &ratebatch.ConfigError{Err: fmt.Errorf("--period %s, but periods are %s since %s: prices are per period, so another length would bill at another rate", asked, b.Period, x.ChangedAt.Format(time.DateOnly)),
		Hint: fmt.Sprintf("leave out --period, or change it on purpose with 'ratebatch settings set period %s --reason …'", asked)}
}

// settle fills in what the command line left open with what the database says.
func (o *rateOptions) settle(ctx context.Context, s *store.Store, out rate.Options) (rate.Options, error) {
	b, err := readBilling(ctx, s)
	if err != nil {
		return out, err
	}
	if out.Period, err = b.length(o.period); err != nil {
		return out, err
	}
	out.Calendar = b.Calendar
	first := o.first
	if first == "" {
		first = b.First
	}
	if out.First, err = rate.ParseFirstPeriod(first); err != nil {
		return out, err
	}
	return out, errors.Join(out.Validate(), out.Calendar.Check(out.Period))
}

// remember stores what a run of rate rests on, so that every later command
// means the same.
func (o *rateOptions) remember(ctx context.Context, s *store.Store, out rate.Options) error {
	b, err := readBilling(ctx, s)
	if err != nil {
		return err
	}
	first := out.First.String()
	for _, x := range []store.BillingSetting{{Name: store.SettingPeriod, Value: out.Period.String(), Reason: "first run"}, {Name: store.SettingFirst, Value: first, Reason: "rate --first-period"}} {
		if was := b.Since[x.Name].Value; was == x.Value || was != "" && x.Name == store.SettingPeriod {
			continue // another length was set meanwhile: length says so below
		}
		x.Author = author()
		if err := s.PutBillingSetting(ctx, x); err != nil {
			return err
		}
	}
	// Two first runs may have crossed with two lengths.
	if b, err = readBilling(ctx, s); err == nil {
		_, err = b.length(out.Period)
	}
	return err
}

func newSettingsCmd(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "settings",
		Short: "Show what bills rest on: length of periods, first periods, billing time zone",
		Long: `Settings shows what belongs to the database and not to a command line, because
bills rest on it. The first 'ratebatch rate' settles period and first_period;
without being set, months are months in UTC.

` + exitCodesHelp,
		Example: `  ratebatch settings
  ratebatch settings set billing_timezone Europe/Berlin --reason "invoices are by local months"`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.withStore(cmd.Context(), p.showSettings)
		},
	}
	cmd.AddCommand(p.settingsSetCmd())
	return cmd
}

func (p *program) showSettings(ctx context.Context, s *store.Store) error {
	b, err := readBilling(ctx, s)
	if err != nil {
		return err
	}
	list := make([]store.BillingSetting, 0, 3)
	for _, x := range []store.BillingSetting{{Name: store.SettingPeriod, Value: "1h0m0s"}, {Name: store.SettingFirst, Value: "month"}, {Name: store.SettingTimezone, Value: "UTC"}} {
		if set, ok := b.Since[x.Name]; ok {
			x = set
		} else {
			x.Reason = "default"
		}
		list = append(list, x)
	}
	return p.print(list, func() {
		w := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
		fmt.Fprintln(w, "SETTING\tVALUE\tSINCE\tWHO\tREASON")
		for _, x := range list {
			since := ""
			if !x.ChangedAt.IsZero() {
				since = x.ChangedAt.Format(time.RFC3339)
			}
			rowf(w, "%s\t%s\t%s\t%s\t%s\n", x.Name, x.Value, since, x.Author, firstLine(x.Reason))
		}
		w.Flush()
	})
}

func (p *program) settingsSetCmd() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "set NAME VALUE --reason TEXT",
		Short: "Set period, first_period or billing_timezone",
		Long: `period            length of a period, such as 5m or 1h. Prices are per period, so this
                  changes what everything costs. Refused while an open month has
                  periods of another length.
first_period      where a scope's first period begins: month, usage, or a date
billing_timezone  the zone that months begin in, such as Europe/Berlin. Its offset
                  must be a multiple of the period. Refused while a month is closed:
                  what was invoiced would no longer be that month.

` + exitCodesHelp,
		Example: `  ratebatch settings set billing_timezone Europe/Berlin --reason "invoices are by local months"`,
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if strings.TrimSpace(reason) == "" {
				return &ratebatch.ConfigError{Err: errors.New("--reason is missing: it is kept with the setting")}
			}
			return p.withStore(cmd.Context(), func(ctx context.Context, s *store.Store) error {
				x := store.BillingSetting{Name: args[0], Value: args[1], Reason: reason, Author: author()}
				if err := checkSetting(ctx, s, &x); err != nil { // what is refused writes nothing
					return err
				}
				// What rates or closes goes by the settings that it began with.
				run := uuid.New()
				held, err := jobs.Acquire(ctx, s, p.log, "rate", run)
				if errors.Is(err, ratebatch.ErrLeaseHeld) {
					return &ratebatch.TryAgainError{Err: err, Hint: "nothing was set; set it when that has ended"}
				}
				if err != nil {
					return err
				}
				defer p.release(ctx, held, run)
				if err := checkSetting(ctx, s, &x); err != nil {
					return err
				}
				warnings, err := p.settingWarns(ctx, s, x)
				if err != nil {
					return err
				}
				for _, w := range warnings {
					fmt.Fprintf(p.stderr, "warning: %s\n", w)
				}
				if err := s.PutBillingSetting(ctx, x); err != nil {
					return err
				}
				return p.print(x, func() { rowf(p.stdout, "%s is %s\n", x.Name, x.Value) })
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why (mandatory)")
	return cmd
}

// settingWarns names what is stored for later and would no longer change where a
// month begins: months of the new zone begin elsewhere.
func (p *program) settingWarns(ctx context.Context, s *store.Store, x store.BillingSetting) ([]string, error) {
	if x.Name != store.SettingTimezone {
		return nil, nil
	}
	calendar, err := ratebatch.CalendarOf(x.Value)
	if err != nil {
		return nil, err
	}
	versions, err := s.Versions(ctx, store.PlanVersions)
	if err != nil {
		return nil, err
	}
	var moments []plan.Moment
	for _, span := range store.InForce(versions, p.now(), store.OpenEnd) {
		if span.Version == nil {
			continue
		}
		name := "rate plan " + planName(*span.Version, "")
		if span.Begin.Equal(span.Version.ValidFrom) {
			moments = append(moments, plan.Moment{What: name + ", begin", Time: span.Begin})
		}
		of, err := planMoments(name, *span.Version)
		if err != nil {
			return nil, err
		}
		moments = append(moments, of...)
	}
	return meantMonths(calendar, slices.DeleteFunc(moments, func(m plan.Moment) bool { return m.Time.Before(p.now()) })), nil
}

// checkSetting refuses what cannot work or would change what was invoiced, and
// writes the value in its one form.
func checkSetting(ctx context.Context, s *store.Store, x *store.BillingSetting) error {
	b, err := readBilling(ctx, s)
	if err != nil {
		return err
	}
	if b.Period == 0 {
		b.Period = time.Hour
	}
	switch x.Name {
	case store.SettingPeriod:
		if b.Period, err = time.ParseDuration(x.Value); err == nil {
			err = ratebatch.CheckPeriodLength(b.Period)
		}
		if err != nil {
			return &ratebatch.ConfigError{Err: fmt.Errorf("period %q: %w", x.Value, err), Hint: "write 5m, 1h or 24h"}
		}
		x.Value = b.Period.String()
		if err := b.Calendar.Check(b.Period); err != nil {
			return err
		}
		return (&rate.Job{Store: s, Options: rate.Options{Period: b.Period, Calendar: b.Calendar}}).CheckPeriodLength(ctx)
	case store.SettingFirst:
		_, err := rate.ParseFirstPeriod(x.Value)
		return err
	case store.SettingTimezone:
		if x.Value == "" {
			x.Value = "UTC"
		}
		c, err := ratebatch.CalendarOf(x.Value)
		if err != nil {
			return err
		}
		if err := c.Check(b.Period); err != nil {
			return err
		}
		closed, err := s.ClosedMonths(ctx)
		if err != nil || len(closed) == 0 || x.Value == b.Calendar.Zone().String() {
			return err
		}
		var names []string
		for _, m := range closed {
			names = append(names, m.Month.Format("2006-01"))
		}
		return &ratebatch.HaltError{Err: fmt.Errorf("billing time zone %s: %s %s closed by the zone %s, and what was invoiced would no longer be that month", x.Value, ratebatch.Some(names, 6), plural(len(names), "is", "are"), b.Calendar.Zone()),
			Hint: "a database keeps its zone once a month is closed; 'ratebatch reopen' them all first, or begin a new database"}
	}
	return &ratebatch.ConfigError{Err: fmt.Errorf("no setting is called %q", x.Name), Hint: "there are period, first_period and billing_timezone"}
}

// plural picks the word for a number.
func plural[N int | uint64](n N, one, more string) string {
	if n == 1 {
		return one
	}
	return more
}
