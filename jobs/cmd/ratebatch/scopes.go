package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/jobs"
	"github.com/ratebatch/ratebatch/jobs/rate"
	"github.com/ratebatch/ratebatch/jobs/scopes"
	"github.com/ratebatch/ratebatch/jobs/scopes/keystone"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

func newScopesCmd(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "scopes",
		Short: "Whose usage is rated: list, show, enable and disable scopes",
	}
	cmd.AddCommand(p.scopesListCmd(), p.scopesShowCmd(), p.scopesLoadCmd(), p.scopesFetchCmd(), p.scopesSetCmd("enable", true), p.scopesSetCmd("disable", false))
	return cmd
}

// listedScope is a scope with what is known of it.
type listedScope struct {
	store.ScopeState
	Regions    []string   `json:"regions"`
	RatedUntil *time.Time `json:"rated_until"`
}

// usageTables are those that the metrics in force read: with scope_key they
// may call something else a scope than the project.
func usageTables(ctx context.Context, s *store.Store) ([]store.UsageTable, error) {
	b, err := readBilling(ctx, s)
	if err != nil {
		return nil, err
	}
	if b.Period == 0 {
		b.Period = time.Hour
	}
	return (&rate.Job{Store: s, Options: rate.Options{Period: b.Period}}).UsageTables(ctx)
}

func listScopes(ctx context.Context, s *store.Store) ([]listedScope, error) {
	states, err := s.ScopeStates(ctx)
	if err != nil {
		return nil, err
	}
	tables, err := usageTables(ctx, s)
	if err != nil {
		return nil, err
	}
	usages, err := s.ScopeUsages(ctx, tables, time.Unix(0, 0))
	if err != nil {
		return nil, err
	}
	rated, err := s.ScopeStatuses(ctx)
	if err != nil {
		return nil, err
	}
	found := map[string]*listedScope{}
	get := func(name string) *listedScope {
		x := found[name]
		if x == nil {
			state, ok := states[name]
			if !ok {
				state = store.ScopeState{Scope: name, Active: true, Fetcher: "usage"}
			}
			x = &listedScope{ScopeState: state, Regions: []string{}}
			found[name] = x
		}
		return x
	}
	for name := range states {
		get(name)
	}
	for _, u := range usages {
		x := get(u.Scope)
		x.Regions = append(x.Regions, u.Region)
	}
	for _, r := range rated {
		x := get(r.Scope)
		if x.RatedUntil == nil || r.RatedUntil.After(*x.RatedUntil) {
			x.RatedUntil = &r.RatedUntil
		}
	}
	out := make([]listedScope, 0, len(found))
	for _, name := range slices.Sorted(mapKeys(found)) {
		out = append(out, *found[name])
	}
	return out, nil
}

func (p *program) scopesListCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the scopes, whether they are rated, and how far",
		Long:    "List prints every scope that has usage or was listed, whether it is rated, and how far.\n\n" + exitCodesHelp,
		Example: "  ratebatch scopes list\n  ratebatch scopes list --output json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.withStore(cmd.Context(), func(ctx context.Context, s *store.Store) error {
				scopes, err := listScopes(ctx, s)
				if err != nil {
					return err
				}
				return p.print(scopes, func() {
					w := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
					fmt.Fprintln(w, "SCOPE\tNAME\tDOMAIN\tSTATE\tREGIONS\tRATED UNTIL\tREASON")
					for _, x := range scopes {
						printScope(w, x)
					}
					w.Flush()
				})
			})
		},
	}
}

func (p *program) scopesLoadCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "load FILE",
		Short: "Load a static list of scopes with their names and domains",
		Long: `Load reads one scope a line, as ID,NAME,DOMAIN, and stores what is new; a name or
domain that is left out stays as it is known. A scope that is disabled stays
disabled; scopes that are not in the file stay as they are, and usage of scopes that
nobody listed is rated all the same.

` + exitCodesHelp,
		Example: "  ratebatch scopes load projects.csv",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f := scopes.Static{File: args[0]}
			if _, err := f.Fetch(cmd.Context()); err != nil {
				return err // a mistake in the file is said before the database is opened
			}
			return p.withStore(cmd.Context(), func(ctx context.Context, s *store.Store) error {
				result, err := p.fetch(ctx, s, f)
				if err != nil {
					return err
				}
				return p.print(result, func() { printFetched(p, result) })
			})
		},
	}
}

// fetchFlags say how Keystone is reached; who the user is stands in the
// environment or in files.
type fetchFlags struct {
	cloud, passwordFile string
	timeout             time.Duration
}

func (o *fetchFlags) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.cloud, "os-cloud", "", "cloud of clouds.yaml [OS_CLOUD]; without one the OS_* variables count")
	f.StringVar(&o.passwordFile, "os-password-file", "", "file with the password of the Keystone user, instead of OS_PASSWORD")
	f.DurationVar(&o.timeout, "fetch-timeout", keystone.DefaultTimeout, "give up on the list of projects after this time")
}

func (o *fetchFlags) keystone() (scopes.Fetcher, error) {
	if o.timeout <= 0 {
		return nil, &ratebatch.ConfigError{Err: fmt.Errorf("--fetch-timeout %s", o.timeout), Hint: "use a second or more"}
	}
	return &keystone.Fetcher{Cloud: o.cloud, PasswordFile: o.passwordFile, Timeout: o.timeout}, nil
}

func (p *program) scopesFetchCmd() *cobra.Command {
	var o fetchFlags
	cmd := &cobra.Command{
		Use:   "fetch keystone",
		Short: "Fetch the projects of a cloud with their names and domains",
		Long: `Fetch lists all projects of Keystone and stores what is new. Usage names every
scope that is rated; a fetch adds what they are called. If it fails nothing is
lost: the scopes known so far stay and are rated.

The user comes from a cloud of clouds.yaml (--os-cloud or OS_CLOUD) or from the
variables of an openrc file (OS_AUTH_URL, OS_USERNAME, OS_USER_DOMAIN_NAME,
OS_PASSWORD, OS_PROJECT_NAME, …, or an application credential); it needs the role
reader on the system (OS_SYSTEM_SCOPE=all), or admin.

` + exitCodesHelp,
		Example: `  ratebatch scopes fetch keystone --os-cloud billing
  ratebatch rate --scopes-from keystone`,
		Args:      cobra.ExactArgs(1),
		ValidArgs: []string{"keystone"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] != "keystone" {
				return &ratebatch.ConfigError{Err: fmt.Errorf("no fetcher is called %q", args[0]), Hint: "there is keystone; a file is read by 'ratebatch scopes load'"}
			}
			f, err := o.keystone()
			if err != nil {
				return err
			}
			return p.withStore(cmd.Context(), func(ctx context.Context, s *store.Store) error {
				result, err := p.fetch(ctx, s, f)
				if err != nil {
					return err
				}
				return p.print(result, func() { printFetched(p, result) })
			})
		},
	}
	o.addFlags(cmd)
	return cmd
}

func printFetched(p *program, r scopes.Result) {
	rowf(p.stdout, "%d scopes listed by %s, %d changed\n", r.Listed, r.Fetcher, r.Changed)
}

// fetch runs a fetcher and notes it in the run log, where status shows it.
func (p *program) fetch(ctx context.Context, s *store.Store, f scopes.Fetcher) (scopes.Result, error) {
	if err := s.CheckSchema(ctx); err != nil {
		return scopes.Result{}, err
	}
	run, err := jobs.Start(ctx, s, "scopes "+f.Name(), os.Args[1:], version, p.now())
	if err != nil {
		return scopes.Result{}, err
	}
	result, err := (&scopes.Job{Store: s, Log: p.log, Author: author()}).Run(ctx, f)
	counts := map[string]string{"listed": fmt.Sprint(result.Listed), "changed": fmt.Sprint(result.Changed)}
	return result, errors.Join(err, run.End(ctx, counts, err))
}

func printScope(w *tabwriter.Writer, x listedScope) {
	state, until := "active", "never"
	if !x.Active {
		state = "disabled"
	}
	if x.RatedUntil != nil {
		until = x.RatedUntil.Format(time.RFC3339)
	}
	rowf(w, "%s\t%s\t%s\t%s\t%v\t%s\t%s\n", x.Scope, x.Name, x.Domain, state, x.Regions, until, firstLine(x.Reason))
}

func (p *program) scopesShowCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "show SCOPE",
		Short:   "Show one scope",
		Long:    "Show prints one scope: its name and domain, whether it is rated and why not, and how far.\n\n" + exitCodesHelp,
		Example: "  ratebatch scopes show 5f2c…",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.withStore(cmd.Context(), func(ctx context.Context, s *store.Store) error {
				x, err := findScope(ctx, s, args[0])
				if err != nil {
					return err
				}
				return p.print(x, func() {
					w := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
					printScope(w, *x)
					w.Flush()
				})
			})
		},
	}
}

func findScope(ctx context.Context, s *store.Store, name string) (*listedScope, error) {
	scopes, err := listScopes(ctx, s)
	if err != nil {
		return nil, err
	}
	for i := range scopes {
		if scopes[i].Scope == name {
			return &scopes[i], nil
		}
	}
	return nil, &ratebatch.ConfigError{Err: fmt.Errorf("no scope is called %q", name), Hint: "list them with 'ratebatch scopes list'"}
}

func (p *program) scopesSetCmd(verb string, active bool) *cobra.Command {
	var reason string
	long, why := "Disable rates a scope no longer. What was rated stays; the scope's schedules of 'reprocess' wait.", "test project"
	if active {
		long, why = "Enable rates a scope again. Periods that passed meanwhile are due at the next run of 'rate'.", "customer is back"
	}
	cmd := &cobra.Command{
		Use:     verb + " SCOPE",
		Short:   map[bool]string{true: "Rate a scope again; periods that passed meanwhile are due", false: "Rate a scope no longer; its rated periods stay"}[active],
		Long:    long + "\n\n" + exitCodesHelp,
		Example: "  ratebatch scopes " + verb + " 5f2c… --reason \"" + why + "\"",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if reason == "" {
				return &ratebatch.ConfigError{Err: errors.New("--reason is missing"), Hint: "say why; it is kept with the scope"}
			}
			return p.withStore(cmd.Context(), func(ctx context.Context, s *store.Store) error {
				x, err := findScope(ctx, s, args[0])
				if err != nil {
					return err
				}
				x.Active, x.Reason = active, reason
				if err := s.SetScope(ctx, x.ScopeState, author()); err != nil {
					return err
				}
				if x, err = findScope(ctx, s, args[0]); err != nil { // with the server's time of the change
					return err
				}
				return p.print(x, func() { rowf(p.stdout, "scope %s is %sd\n", x.Scope, verb) })
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why (mandatory)")
	return cmd
}

func newWatermarkCmd(p *program) *cobra.Command {
	var region, until, note, source, topic string
	var unset bool
	cmd := &cobra.Command{
		Use:   "watermark",
		Short: "Show up to when each region's input is complete, or set it",
		Long: `A period is rated when its region's watermark has passed its end. Without one
that is set it follows what ingest has drained, or the newest sample of a region
that ingest does not read. Set it where you know better: when a load is complete, or
must be waited for. With --unset a region follows its input again.

Watermarks wait for every source that ingest has ever read, a consumer group of a
Kafka cluster. One that is gone for good, such as a cluster that was replaced or a
group that was renamed, is struck out by --forget-source, one topic of it with
--topic too; what it still held is not waited for. An ingest that reads it again
brings it back.

` + exitCodesHelp,
		Example: `  ratebatch watermark
  ratebatch watermark --region RegionOne --until 2026-11-01T00:00:00Z --note "October is loaded"
  ratebatch watermark --forget-source Qx4…/ratebatch-ingest`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.withStore(cmd.Context(), func(ctx context.Context, s *store.Store) error {
				if err := s.CheckSchema(ctx); err != nil {
					return err
				}
				switch {
				case unset && (until != "" || region == ""):
					return &ratebatch.ConfigError{Err: errors.New("--unset needs --region and no --until")}
				case source != "" && (region != "" || until != ""):
					return &ratebatch.ConfigError{Err: errors.New("--forget-source goes without --region and --until")}
				case topic != "" && source == "":
					return &ratebatch.ConfigError{Err: errors.New("--topic without --forget-source")}
				}
				if source != "" {
					if err := p.forgetSource(ctx, s, source, topic); err != nil {
						return err
					}
				}
				if unset {
					if err := p.unsetWatermark(ctx, s, region, note); err != nil {
						return err
					}
				}
				if until != "" {
					moment, err := parseMoment("until", until)
					if err != nil {
						return err
					}
					if region == "" {
						return &ratebatch.ConfigError{Err: errors.New("--until without --region")}
					}
					if err := p.warnUnknownRegion(ctx, s, region); err != nil {
						return err
					}
					if err := s.SetWatermark(ctx, store.Watermark{Region: region, CompleteUntil: moment, Source: "operator"}, note); err != nil {
						return err
					}
				}
				marks, err := s.Watermarks(ctx)
				if err != nil {
					return err
				}
				list := make([]store.Watermark, 0, len(marks))
				for _, name := range slices.Sorted(mapKeys(marks)) {
					list = append(list, marks[name])
				}
				return p.print(list, func() {
					w := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
					fmt.Fprintln(w, "REGION\tCOMPLETE UNTIL\tSOURCE")
					for _, m := range list {
						until := m.CompleteUntil.Format(time.RFC3339)
						if m.CompleteUntil.Unix() <= 0 {
							until = "not known yet"
						}
						rowf(w, "%s\t%s\t%s\n", m.Region, until, m.Source)
					}
					w.Flush()
				})
			})
		},
	}
	cmd.Flags().StringVar(&region, "region", "", "region to set")
	cmd.Flags().StringVar(&until, "until", "", "input is complete up to here")
	cmd.Flags().StringVar(&note, "note", "", "why")
	cmd.Flags().BoolVar(&unset, "unset", false, "let the region follow its input again")
	cmd.Flags().StringVar(&source, "forget-source", "", "source that is gone for good, as ingest names it: cluster/group")
	cmd.Flags().StringVar(&topic, "topic", "", "with --forget-source: only this topic of it")
	return cmd
}

// forgetSource strikes out a source that no watermark should wait for any more, and
// says up to when it was read.
func (p *program) forgetSource(ctx context.Context, s *store.Store, source, topic string) error {
	struck, err := s.ForgetSource(ctx, source, topic)
	if err != nil {
		return err
	}
	for i, x := range struck {
		if i == 0 || x.Topic != struck[i-1].Topic {
			oldest := x.DrainedAt
			for _, y := range struck {
				if y.Topic == x.Topic {
					oldest = ratebatch.Earlier(oldest, y.DrainedAt)
				}
			}
			fmt.Fprintf(p.stderr, "ratebatch: no watermark waits for topic %s of source %s any more; it was drained %s\n", plain(x.Topic), plain(source), whenDrained(oldest))
		}
	}
	if len(struck) > 0 {
		return nil
	}
	sources, err := s.IngestSources(ctx)
	if err != nil {
		return err
	}
	hint := "ingest has read none"
	if len(sources) > 0 {
		var list []string
		for _, x := range sources {
			list = append(list, fmt.Sprintf("%s (drained %s)", plain(x.Source), whenDrained(x.DrainedAt)))
		}
		hint = "there are " + strings.Join(list, ", ")
	}
	what := fmt.Sprintf("no watermark waits for a source %q", source)
	if topic != "" {
		what = fmt.Sprintf("no watermark waits for a topic %q of source %q", topic, source)
	}
	return &ratebatch.ConfigError{Err: errors.New(what), Hint: hint}
}

// warnUnknownRegion says so when nothing is known of a region: a mistyped name
// would hold up nobody, and help nobody.
func (p *program) warnUnknownRegion(ctx context.Context, s *store.Store, region string) error {
	marks, err := s.Watermarks(ctx)
	if err != nil {
		return err
	}
	tables, err := usageTables(ctx, s)
	if err != nil {
		return err
	}
	usages, err := s.ScopeUsages(ctx, tables, time.Unix(0, 0))
	if err != nil {
		return err
	}
	if _, ok := marks[region]; ok || slices.ContainsFunc(usages, func(u store.ScopeUsage) bool { return u.Region == region }) {
		return nil
	}
	fmt.Fprintf(p.stderr, "ratebatch: warning: region %s has no usage and no samples yet; check its name with 'ratebatch watermark'\n", plain(region))
	return nil
}

// unsetWatermark takes back what was set: no time at all is not believed.
func (p *program) unsetWatermark(ctx context.Context, s *store.Store, region, note string) error {
	marks, err := s.Watermarks(ctx)
	if err != nil {
		return err
	}
	if marks[region].Source != "operator" {
		return &ratebatch.ConfigError{Err: fmt.Errorf("region %s has no watermark that was set", region), Hint: "list them with 'ratebatch watermark'"}
	}
	return s.SetWatermark(ctx, store.Watermark{Region: region, CompleteUntil: time.Unix(0, 0), Source: "unset"}, note)
}
