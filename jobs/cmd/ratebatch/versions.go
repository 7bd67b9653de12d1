package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// versioned is what plan and metrics have in common: files that are checked,
// stored as immutable versions with a validity, listed and shown.
type versioned struct {
	kind  store.VersionKind
	noun  string // rate plan, metric set
	limit argLimit
	help  string // what else apply refuses
	// read checks a file's content and gives its digest and currency.
	read func(name string, body []byte) (digest, currency string, warnings []string, err error)
	// fits checks the content against what else is in force then.
	fits func(ctx context.Context, s *store.Store, d draft) error
	// warns says what of the content cannot work as things are now, or is
	// probably not meant.
	warns func(ctx context.Context, s *store.Store, d draft) ([]string, error)
}

// draft is a file that is about to become the next version.
type draft struct {
	store.Version
	file     string
	stored   []store.Version // the versions before it, the oldest first
	calendar ratebatch.Calendar
	period   time.Duration
	force    bool
}

// spans cuts the version's validity where another version of the other kind
// takes over.
func (d *draft) spans(versions []store.Version) []store.Span {
	return store.PeriodSpans(versions, d.ValidFrom, d.ValidTo, d.period)
}

// command is the group of commands that the versions belong to.
func (v versioned) command() string {
	if v.kind == store.PlanVersions {
		return "plan"
	}
	return "metrics"
}

type applyOptions struct {
	from, to, note, reason string
	maxChange, changeMonth string // percent, and whose usage is priced; of plans
	force, dryRun          bool
}

func (p *program) applyCmd(v versioned) *cobra.Command {
	var o applyOptions
	example, forceHelp := `  ratebatch metrics apply metrics.yaml`, "change what already rated periods were priced by"
	if v.kind == store.PlanVersions {
		forceHelp += ", or minimums and caps within a month's last day"
		example = `  ratebatch plan apply plan.yaml --from 2026-12-01 --note "prices of December"`
	}
	cmd := &cobra.Command{
		Use:   "apply FILE",
		Short: "Check a " + v.noun + " and store it as the next version",
		Long: `Apply checks the file and stores it as an immutable version that is in force
for periods that begin at or after --from (the next full hour by default): a
period is rated as a whole by what is in force at its begin, so a --from or --to
within a period counts from the next one on. Of versions that overlap the one
applied last counts. Applying what is already in
force does nothing.

A version that changes what already rated periods were priced by needs --force
and --reason; those periods keep their prices until they are reprocessed.
` + v.help + `
` + exitCodesHelp,
		Example: example,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.apply(cmd.Context(), v, args[0], o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.from, "from", "", "periods that begin then or later (RFC 3339 or a date, UTC); default: the next full hour, or everything for the first version")
	f.StringVar(&o.to, "to", "", "periods that begin then or later are no longer rated by it; default: open")
	f.StringVar(&o.note, "note", "", "why, for whoever reads the list of versions")
	f.BoolVar(&o.force, "force", false, forceHelp)
	f.StringVar(&o.reason, "reason", "", "why, with --force")
	f.BoolVar(&o.dryRun, "dry-run", false, "check and say what would happen; write nothing")
	if v.kind == store.PlanVersions {
		f.StringVar(&o.maxChange, "max-change", "", "refuse (exit 20) a plan by which any project's last whole month would cost more than this many percent more or less")
		f.StringVar(&o.changeMonth, "max-change-month", "", "with --max-change: whose usage is priced, "+monthHelp+"; default: the last whole month")
	}
	return cmd
}

// parseMoment reads an RFC 3339 instant or a date, which is midnight UTC.
func parseMoment(flag, text string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, &ratebatch.ConfigError{Err: fmt.Errorf("--%s %q", flag, text), Hint: "write a date such as 2026-11-01 or an instant such as 2026-11-01T00:00:00Z"}
}

func (p *program) apply(ctx context.Context, v versioned, file string, o applyOptions) error {
	body, err := p.readArg(file, v.limit)
	if err != nil {
		return err
	}
	digest, currency, warnings, err := v.read(file, body)
	if err != nil {
		return err
	}
	for _, w := range warnings {
		fmt.Fprintf(p.stderr, "warning: %s\n", w)
	}
	next := store.Version{Digest: digest, Body: string(body), Currency: currency, Author: author(), Note: o.note, ValidTo: store.OpenEnd}
	if o.reason != "" {
		next.Note = firstNonEmpty(o.note, "") + "forced: " + o.reason
	}
	if o.to != "" {
		if next.ValidTo, err = parseMoment("to", o.to); err != nil {
			return err
		}
	}
	return p.withStore(ctx, func(ctx context.Context, s *store.Store) error {
		return p.applyTo(ctx, s, v, file, next, o)
	})
}

func firstNonEmpty(a, b string) string {
	if a != "" {
		return a + "; "
	}
	return b
}

func (p *program) applyTo(ctx context.Context, s *store.Store, v versioned, file string, next store.Version, o applyOptions) error {
	if err := s.CheckSchema(ctx); err != nil {
		return err
	}
	versions, err := s.Versions(ctx, v.kind)
	if err != nil {
		return err
	}
	switch {
	case o.from != "":
		if next.ValidFrom, err = parseMoment("from", o.from); err != nil {
			return err
		}
	case len(versions) == 0:
		next.ValidFrom = time.Unix(0, 0).UTC()
	default:
		next.ValidFrom = p.now().UTC().Truncate(time.Hour).Add(time.Hour)
	}
	if !next.ValidFrom.Before(next.ValidTo) {
		return &ratebatch.ConfigError{Err: fmt.Errorf("--from %s is not before --to %s", next.ValidFrom.Format(time.RFC3339), next.ValidTo.Format(time.RFC3339))}
	}
	if unchanged(versions, next) {
		return p.print(map[string]any{"applied": false, "digest": next.Digest}, func() {
			rowf(p.stdout, "this %s is already in force at %s; nothing was stored\n", v.noun, next.ValidFrom.Format(time.RFC3339))
		})
	}
	b, err := readBilling(ctx, s)
	if err != nil {
		return err
	}
	d := draft{Version: next, file: file, stored: versions, calendar: b.Calendar, force: o.force && o.reason != ""}
	if d.period, err = b.length(0); err != nil {
		return err
	}
	warnings, err := v.warns(ctx, s, d)
	if err != nil {
		return err
	}
	for _, w := range append(o.warns(d), warnings...) {
		fmt.Fprintf(p.stderr, "warning: %s\n", w)
	}
	if err := v.fits(ctx, s, d); err != nil {
		return err
	}
	if o.changeMonth != "" && o.maxChange == "" {
		return &ratebatch.ConfigError{Err: errors.New("--max-change-month without --max-change")}
	}
	if o.maxChange != "" {
		if err := p.guardApply(ctx, s, versions, next, o); err != nil {
			return err
		}
	}
	outdated, err := s.OutdatedBy(ctx, v.kind, next)
	if err != nil {
		return err
	}
	if outdated > 0 && !o.force {
		return &ratebatch.ConfigError{
			Err:  fmt.Errorf("%d rated periods were priced by another %s from %s on", outdated, v.noun, next.ValidFrom.Format(time.RFC3339)),
			Hint: "apply it from a later moment (--from), or with --force --reason '…' and then reprocess them",
		}
	}
	if outdated > 0 && o.reason == "" {
		return &ratebatch.ConfigError{Err: errors.New("--force without --reason"), Hint: "say why in --reason '…'; it is kept with the version"}
	}
	gone := superseded(versions, next)
	numbers := []uint32{}
	for _, x := range gone {
		numbers = append(numbers, x.Version)
	}
	sayGone := func(verb string) {
		for _, x := range gone {
			rowf(p.stdout, "version %d, from %s on, %s not come into force: this one takes its place; give it an end (--to) if that is not meant\n", x.Version, x.ValidFrom.Format(time.RFC3339), verb)
		}
	}
	if o.dryRun {
		return p.print(map[string]any{"applied": false, "digest": next.Digest, "outdated_periods": outdated, "valid_from": next.ValidFrom, "superseded": numbers}, func() {
			rowf(p.stdout, "would be in force from %s on; %d rated periods would be outdated\n", next.ValidFrom.Format(time.RFC3339), outdated)
			sayGone("would")
		})
	}
	stored, err := s.AddVersion(ctx, v.kind, next)
	if err != nil {
		return err
	}
	return p.print(map[string]any{"applied": true, "version": stored.Version, "digest": stored.Digest, "valid_from": stored.ValidFrom, "outdated_periods": outdated, "superseded": numbers}, func() {
		rowf(p.stdout, "%s version %d is in force from %s on\n", v.noun, stored.Version, stored.ValidFrom.Format(time.RFC3339))
		sayGone("will")
		if outdated > 0 {
			rowf(p.stdout, "%d rated periods are outdated now; reprocess them to price them by it\n", outdated)
		}
	})
}

// superseded lists the versions that were stored for later and that, with next
// applied after them, are never in force.
func superseded(versions []store.Version, next store.Version) []store.Version {
	inForce := func(list []store.Version) map[uint32]bool {
		out := map[uint32]bool{}
		for _, span := range store.InForce(list, next.ValidFrom, store.OpenEnd) {
			if span.Version != nil {
				out[span.Version.Version] = true
			}
		}
		return out
	}
	before, after := inForce(versions), inForce(append(slices.Clone(versions), next))
	var out []store.Version
	for _, x := range versions {
		if x.ValidFrom.After(next.ValidFrom) && before[x.Version] && !after[x.Version] {
			out = append(out, x)
		}
	}
	return out
}

// unchanged says whether next would change nothing anywhere in its validity.
func unchanged(versions []store.Version, next store.Version) bool {
	for _, span := range store.InForce(versions, next.ValidFrom, next.ValidTo) {
		if span.Version == nil || span.Version.Digest != next.Digest {
			return false
		}
	}
	return true
}

func (p *program) listCmd(v versioned) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the versions that were applied",
		Long:    "List prints the versions of the " + v.noun + " that were applied, the oldest first.\n\n" + exitCodesHelp,
		Example: "  ratebatch " + v.command() + " list\n  ratebatch " + v.command() + " list --output json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.withStore(cmd.Context(), func(ctx context.Context, s *store.Store) error {
				versions, err := s.Versions(ctx, v.kind)
				if err != nil {
					return err
				}
				return p.print(versions, func() {
					w := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
					fmt.Fprintln(w, "VERSION\tDIGEST\tFROM\tTO\tAUTHOR\tAPPLIED\tNOTE")
					for _, x := range versions {
						to := "open"
						if x.ValidTo.Before(store.OpenEnd) {
							to = x.ValidTo.Format(time.RFC3339)
						}
						rowf(w, "%d\t%.12s\t%s\t%s\t%s\t%s\t%s\n", x.Version, x.Digest, x.ValidFrom.Format(time.RFC3339), to, x.Author, x.AppliedAt.Format(time.RFC3339), firstLine(x.Note))
					}
					w.Flush()
				})
			})
		},
	}
}

func (p *program) showCmd(v versioned) *cobra.Command {
	return &cobra.Command{
		Use:     "show [VERSION]",
		Short:   "Print a version as it was applied; without a number the newest",
		Long:    "Show prints a version of the " + v.noun + " as it was applied; without a number the newest.\n\n" + exitCodesHelp,
		Example: "  ratebatch " + v.command() + " show\n  ratebatch " + v.command() + " show 2",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.withStore(cmd.Context(), func(ctx context.Context, s *store.Store) error {
				x, err := p.version(ctx, s, v, args)
				if err != nil {
					return err
				}
				_, err = fmt.Fprint(p.stdout, x.Body)
				return err
			})
		},
	}
}

func (p *program) version(ctx context.Context, s *store.Store, v versioned, args []string) (store.Version, error) {
	versions, err := s.Versions(ctx, v.kind)
	if err != nil {
		return store.Version{}, err
	}
	if len(versions) == 0 {
		err := &ratebatch.ConfigError{Err: fmt.Errorf("no %s was applied", v.noun)}
		if v.kind == store.MetricVersions {
			err.Hint = "the built-in one counts: 'ratebatch metrics default'"
		}
		return store.Version{}, err
	}
	if len(args) == 0 {
		return versions[len(versions)-1], nil
	}
	number, err := strconv.ParseUint(args[0], 10, 32)
	if err != nil {
		return store.Version{}, &ratebatch.ConfigError{Err: fmt.Errorf("version %q is no number", args[0])}
	}
	for _, x := range versions {
		if uint64(x.Version) == number {
			return x, nil
		}
	}
	return store.Version{}, &ratebatch.ConfigError{Err: fmt.Errorf("there is no version %d of the %s", number, v.noun)}
}
