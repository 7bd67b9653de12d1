package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/ratebatch/engine"
)

func newEngineCmd(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "engine",
		Short: "Install, serve and query the embedded ClickHouse engine",
		Long: `The embedded engine is ClickHouse as a library (libchdb), run in a process of
its own over the folder given by --data. Commands without --clickhouse start it
by themselves; these subcommands are for everything around that.`,
	}
	cmd.AddCommand(newEngineInstallCmd(p), newEngineServeCmd(p), newEngineSQLCmd(p))
	return cmd
}

// openEngine opens ClickHouse as the flags say, for commands that need no
// database of their own.
func (p *program) openEngine(cmd *cobra.Command, o engine.Options) (*engine.Engine, error) {
	return engine.Open(cmd.Context(), o)
}

type engineServeOptions struct {
	port int
}

func newEngineServeCmd(p *program) *cobra.Command {
	var o engineServeOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Keep the embedded engine running until interrupted",
		Long: `Starts the embedded engine over --data, or joins the one that runs there, and
keeps it up until this command is interrupted and all other clients have left.
Commands that use the folder meanwhile start faster.

It serves the ClickHouse HTTP protocol on the loopback interface. URL, user and
password stand in DATA/engine/endpoint.json, which only its owner can read.

` + exitCodesHelp,
		Example: `  ratebatch engine serve --data /var/lib/ratebatch --port 8123`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options := p.engine
			options.Port, options.Database = o.port, ""
			e, err := p.openEngine(cmd, options)
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(p.stdout, "ClickHouse %s at %s\n", e.Version(), e.URL()); err != nil {
				return err
			}
			select {
			case <-cmd.Context().Done():
			case <-e.Lost():
				return e.ErrLost()
			}
			return e.Close()
		},
	}
	cmd.Flags().IntVar(&o.port, "port", 0, "loopback port; 0 takes any free one")
	return cmd
}
