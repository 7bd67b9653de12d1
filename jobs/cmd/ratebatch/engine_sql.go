package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/engine"
	"github.com/ratebatch/ratebatch/ratebatch/engine/sqlshell"
)

type engineSQLOptions struct {
	queries []string
	format  string
}

func (o *engineSQLOptions) AddFlags(cmd *cobra.Command) {
	cmd.Flags().StringArrayVarP(&o.queries, "query", "q", nil, "statement to run; may be given more than once")
	cmd.Flags().StringVarP(&o.format, "format", "f", "", "how to print results: "+strings.Join(sqlshell.Formats, ", ")+" (default: what --output says)")
}

func (o *engineSQLOptions) Validate() error {
	if o.format != "" && !slices.Contains(sqlshell.Formats, o.format) {
		return &ratebatch.ConfigError{Err: fmt.Errorf("--format %q", o.format), Hint: "use one of " + strings.Join(sqlshell.Formats, ", ")}
	}
	return nil
}

func newEngineSQLCmd(p *program) *cobra.Command {
	var o engineSQLOptions
	cmd := &cobra.Command{
		Use:   "sql",
		Short: "Query ClickHouse from a prompt, a flag or standard input",
		Long: `Runs SQL on the embedded engine or, with --clickhouse, on a server. Without -q
it reads statements from standard input, and at a terminal it shows a prompt
with a history. Statements end with ; or, to print one value per line, with \G.

Results go to standard output; at a prompt long ones go through $PAGER. The
first statement that fails ends the command, except at a prompt.

The embedded engine refuses statements that reach outside its own data: file(),
url(), s3(), INTO OUTFILE and their like.

` + exitCodesHelp,
		Example: `  ratebatch engine sql -q 'SELECT count() FROM rated_lines'
  ratebatch engine sql -f csv -q 'SELECT * FROM rated ORDER BY scope' > rated.csv
  echo 'SHOW TABLES; SELECT version()\G' | ratebatch engine sql`,
		Args: engineArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := o.Validate(); err != nil {
				return err
			}
			s := &sqlshell.Shell{Format: o.format, Stdin: p.stdin, Stdout: p.stdout, Stderr: p.stderr}
			if s.Format == "" {
				s.Format = p.output
			}
			options := p.engine
			options.MaxConns = 1 // SET and temporary tables last
			options.Create = options.URL == ""
			if s.Engine, err = engine.Open(cmd.Context(), options); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, s.Engine.Close()) }()
			if len(o.queries) > 0 {
				for _, q := range o.queries {
					if err := s.Run(cmd.Context(), q); err != nil {
						return err
					}
				}
				return nil
			}
			if terminal, ok := p.stdin.(*os.File); ok && isTerminal(terminal) {
				s.HistoryFile, s.Pager = historyFile(), pagerCommand()
				return s.Interactive(cmd.Context(), terminal)
			}
			text, err := io.ReadAll(p.stdin)
			if err != nil {
				return fmt.Errorf("read statements from standard input: %w", err)
			}
			return s.Run(cmd.Context(), string(text))
		},
	}
	o.AddFlags(cmd)
	return cmd
}

// historyFile is in the user's state folder; without a home there is no history.
func historyFile() string {
	if dir := os.Getenv("XDG_STATE_HOME"); dir != "" {
		return filepath.Join(dir, "ratebatch", "sql_history")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".local", "state", "ratebatch", "sql_history")
}

func pagerCommand() string {
	if pager, set := os.LookupEnv("PAGER"); set {
		return pager
	}
	if _, err := exec.LookPath("less"); err == nil {
		return "less"
	}
	return ""
}
