package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/engine"
	"github.com/ratebatch/ratebatch/ratebatch/engine/dump"
)

type engineDumpOptions struct {
	format string
	tables []string
}

func (o *engineDumpOptions) AddFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.format, "format", dump.Native, "native (every type, compressed) or parquet (for other tools)")
	cmd.Flags().StringSliceVar(&o.tables, "table", nil, "only these tables")
}

func (o *engineDumpOptions) Validate() error {
	if !slices.Contains([]string{dump.Native, dump.Parquet}, o.format) {
		return &ratebatch.ConfigError{Err: fmt.Errorf("--format %q", o.format), Hint: "use native or parquet"}
	}
	return nil
}

func newEngineDumpCmd(p *program) *cobra.Command {
	var o engineDumpOptions
	cmd := &cobra.Command{
		Use:   "dump FOLDER",
		Short: "Copy all tables into files",
		Long: `Copies the tables and views of the database, of the embedded engine or with
--clickhouse of a server, into a new folder: a file per table and, written last,
manifest.json with each table's rows, a digest over them and the sums of its
numeric columns. 'ratebatch engine load' compares them.

Dump while no job writes: a table that changes meanwhile ends the dump with
exit code 75.

` + exitCodesHelp,
		Example: `  ratebatch engine dump /backup/ratebatch-2026-03
  ratebatch --clickhouse https://ch.example.org:8443 engine dump --format parquet --table rated_lines /tmp/lines`,
		Args: engineArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.Validate(); err != nil {
				return err
			}
			return p.withEngine(cmd.Context(), p.engine, func(ctx context.Context, e *engine.Engine) error {
				m, err := dump.Dump(ctx, dump.Options{Engine: e, Dir: args[0], Format: o.format, Tables: o.tables, Now: p.now, Progress: p.tellTable("dumped")})
				if err != nil {
					return err
				}
				return p.print(m, func() { p.printTables(m) })
			})
		},
	}
	o.AddFlags(cmd)
	return cmd
}

func newEngineLoadCmd(p *program) *cobra.Command {
	var tables []string
	cmd := &cobra.Command{
		Use:   "load FOLDER",
		Short: "Fill an empty database from a dump, and compare",
		Long: `Creates the tables of a dump where they are missing, fills them, compares rows,
digests and sums with the dump's manifest, and creates the views last. Tables
that are there already must be empty; nothing is replaced. A difference ends
with exit code 20.

` + exitCodesHelp,
		Example: `  ratebatch --data /var/lib/ratebatch-new engine load /backup/ratebatch-2026-03
  ratebatch --clickhouse clickhouse://ch.example.org engine load /backup/ratebatch-2026-03`,
		Args: engineArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			options := p.engine
			options.Create = true
			return p.withEngine(cmd.Context(), options, func(ctx context.Context, e *engine.Engine) error {
				m, err := dump.Load(ctx, dump.Options{Engine: e, Dir: args[0], Tables: tables, Progress: p.tellTable("loaded")})
				if err != nil {
					return err
				}
				return p.print(m, func() { p.printTables(m) })
			})
		},
	}
	cmd.Flags().StringSliceVar(&tables, "table", nil, "only these tables")
	return cmd
}

// withEngine opens ClickHouse, hands it to use, and closes it again.
func (p *program) withEngine(ctx context.Context, o engine.Options, use func(context.Context, *engine.Engine) error) (err error) {
	e, err := engine.Open(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	return use(ctx, e)
}

func (p *program) tellTable(verb string) func(int, int, dump.Table) {
	return func(done, total int, t dump.Table) {
		p.log.Info(verb, "table", t.Name, "rows", t.Rows, "bytes", t.Bytes, "done", done, "of", total)
	}
}

func (p *program) printTables(m *dump.Manifest) {
	w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TABLE\tENGINE\tROWS\tBYTES\tDIGEST")
	for _, t := range m.Tables {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\n", t.Name, t.Engine, t.Rows, t.Bytes, t.Digest)
	}
	_ = w.Flush() // p.stdout's errors are the shell's business
}
