package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

func newScopesCmd(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "scopes",
		Short: "Whose usage is rated: list, show, enable and disable scopes",
	}
	cmd.AddCommand(p.scopesListCmd(), p.scopesShowCmd(), p.scopesLoadCmd(), p.scopesSetCmd("enable", true), p.scopesSetCmd("disable", false))
	return cmd
}

// listedScope is a scope with what is known of it.
type listedScope struct {
	store.ScopeState
	Regions    []string   `json:"regions"`
	RatedUntil *time.Time `json:"rated_until"`
}

func listScopes(ctx context.Context, s *store.Store) ([]listedScope, error) {
	states, err := s.ScopeStates(ctx)
	if err != nil {
		return nil, err
	}
	usages, err := s.ScopeUsages(ctx, store.HourlyTiers(), time.Unix(0, 0))
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
		Use:   "list",
		Short: "List the scopes, whether they are rated, and how far",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.withStore(cmd.Context(), func(ctx context.Context, s *store.Store) error {
				scopes, err := listScopes(ctx, s)
				if err != nil {
					return err
				}
				return p.print(scopes, func() {
					w := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
					fmt.Fprintln(w, "SCOPE\tNAME\tSTATE\tREGIONS\tRATED UNTIL\tREASON")
					for _, x := range scopes {
						printScope(w, x)
					}
					w.Flush()
				})
			})
		},
	}
}

// readScopes reads the static list: one scope a line as ID,NAME,DOMAIN, of
// which only the first is needed.
func readScopes(file string) ([]store.ScopeState, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, &ratebatch.ConfigError{Err: err}
	}
	defer f.Close()
	reader := csv.NewReader(f)
	reader.FieldsPerRecord, reader.Comment, reader.TrimLeadingSpace = -1, '#', true
	var out []store.ScopeState
	seen := map[string]bool{}
	for {
		record, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, &ratebatch.ConfigError{Err: fmt.Errorf("%s: %w", file, err)}
		}
		line, _ := reader.FieldPos(0)
		if record[0] == "" || len(record) > 3 || seen[record[0]] {
			return nil, &ratebatch.ConfigError{Err: fmt.Errorf("%s:%d: %q", file, line, strings.Join(record, ",")), Hint: "write one scope a line, once, as ID,NAME,DOMAIN"}
		}
		seen[record[0]] = true
		record = append(record, "", "")
		out = append(out, store.ScopeState{Scope: record[0], Active: true, Name: record[1], Domain: record[2], Fetcher: "static"})
	}
}

func (p *program) scopesLoadCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "load FILE",
		Short: "Load a static list of scopes with their names and domains",
		Long: `Load reads one scope a line, as ID,NAME,DOMAIN, and stores what is new. A scope
that is disabled stays disabled; scopes that are not in the file stay as they are,
and usage of scopes that nobody listed is rated all the same.

` + exitCodesHelp,
		Example: "  ratebatch scopes load projects.csv",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := readScopes(args[0])
			if err != nil {
				return err
			}
			return p.withStore(cmd.Context(), func(ctx context.Context, s *store.Store) error {
				known, err := s.ScopeStates(ctx)
				if err != nil {
					return err
				}
				changed := 0
				for _, x := range list {
					old, ok := known[x.Scope]
					if ok {
						x.Active, x.Reason = old.Active, old.Reason
					}
					if ok && old.Name == x.Name && old.Domain == x.Domain {
						continue
					}
					if err := s.SetScope(ctx, x, author()); err != nil {
						return err
					}
					changed++
				}
				return p.print(map[string]int{"listed": len(list), "changed": changed}, func() { rowf(p.stdout, "%d scopes listed, %d changed\n", len(list), changed) })
			})
		},
	}
}

func printScope(w *tabwriter.Writer, x listedScope) {
	state, until := "active", "never"
	if !x.Active {
		state = "disabled"
	}
	if x.RatedUntil != nil {
		until = x.RatedUntil.Format(time.RFC3339)
	}
	rowf(w, "%s\t%s\t%s\t%v\t%s\t%s\n", x.Scope, x.Name, state, x.Regions, until, firstLine(x.Reason))
}

func (p *program) scopesShowCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "show SCOPE",
		Short: "Show one scope",
		Args:  cobra.ExactArgs(1),
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
	cmd := &cobra.Command{
		Use:   verb + " SCOPE",
		Short: map[bool]string{true: "Rate a scope again; periods that passed meanwhile are due", false: "Rate a scope no longer; its rated periods stay"}[active],
		Args:  cobra.ExactArgs(1),
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
				return p.print(x, func() { rowf(p.stdout, "scope %s is %sd\n", x.Scope, verb) })
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why (mandatory)")
	return cmd
}

func newWatermarkCmd(p *program) *cobra.Command {
	var region, until, note string
	cmd := &cobra.Command{
		Use:   "watermark",
		Short: "Show up to when each region's input is complete, or set it",
		Long: `A period is rated when its region's watermark has passed its end. Without one
that is set it follows the newest sample. Set it where you know better: when a
load is complete, or must be waited for.`,
		Example: `  ratebatch watermark
  ratebatch watermark --region RegionOne --until 2026-11-01T00:00:00Z --note "October is loaded"`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.withStore(cmd.Context(), func(ctx context.Context, s *store.Store) error {
				if until != "" {
					moment, err := parseMoment("until", until)
					if err != nil {
						return err
					}
					if region == "" {
						return &ratebatch.ConfigError{Err: errors.New("--until without --region")}
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
						rowf(w, "%s\t%s\t%s\n", m.Region, m.CompleteUntil.Format(time.RFC3339), m.Source)
					}
					w.Flush()
				})
			})
		},
	}
	cmd.Flags().StringVar(&region, "region", "", "region to set")
	cmd.Flags().StringVar(&until, "until", "", "input is complete up to here")
	cmd.Flags().StringVar(&note, "note", "", "why")
	return cmd
}
