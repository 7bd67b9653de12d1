package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/ratebatch"
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
	cmd.AddCommand(newEngineInstallCmd(p), newEngineServeCmd(p), newEngineSQLCmd(p), newEngineDumpCmd(p), newEngineLoadCmd(p))
	return cmd
}

// engineArgs makes a wrong number of arguments what it is, exit code 2.
func engineArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return &ratebatch.ConfigError{Err: err, Hint: "see '" + cmd.CommandPath() + " --help'"}
		}
		return nil
	}
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
		Args:    engineArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			options := p.engine
			options.Port, options.Database = o.port, ""
			if options.URL != "" {
				return &ratebatch.ConfigError{Err: errors.New("engine serve with --clickhouse"), Hint: "a server serves itself; leave --clickhouse out"}
			}
			return p.withEngine(cmd.Context(), options, func(ctx context.Context, e *engine.Engine) error {
				if o.port != 0 && !strings.HasSuffix(e.URL(), ":"+strconv.Itoa(o.port)) {
					return &ratebatch.ConfigError{Err: fmt.Errorf("the engine of %s already serves at %s", options.DataDir, e.URL()), Hint: "leave --port out, or stop the commands that use it"}
				}
				if err := p.print(map[string]string{"url": e.URL(), "version": e.Version()}, func() {
					fmt.Fprintf(p.stdout, "ClickHouse %s at %s\n", e.Version(), e.URL())
				}); err != nil {
					return err
				}
				select {
				case <-ctx.Done():
					return nil // being told to end is how this command ends
				case <-e.Lost():
					return e.ErrLost()
				}
			})
		},
	}
	cmd.Flags().IntVar(&o.port, "port", 0, "loopback port; 0 takes any free one")
	return cmd
}
