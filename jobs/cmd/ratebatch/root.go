package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/lmittmann/tint"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/ratebatch/ratebatch/jobs"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/engine"
)

// version is set by the linker (see the Makefile); it comes from git.
var version = "dev"

// program is what every subcommand shares: the streams, the flags that all
// commands have, the logger and the clock.
type program struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	now            func() time.Time
	log            *slog.Logger

	engine    engine.Options // --clickhouse, --data, --database
	output    string         // --output table|json
	logFormat string         // --log-format text|json
	verbose   bool
	config    string          // --config
	given     map[string]bool // flags that the command line names; others may come from the configuration
	telemetry telemetry       // --metrics-dir, --metrics-push
	tracer    *tracer         // nil: no traces
}

// run executes one command line and returns its exit code. Tests call it
// in-process.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return (&program{stdin: stdin, stdout: stdout, stderr: stderr, now: time.Now}).run(ctx, args)
}

// run is the program with a clock of its own.
func (p *program) run(ctx context.Context, args []string) int {
	begin := p.now()
	p.tracer = newTracer(p.now)
	root := newRootCmd(p)
	strict(root)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	code := ratebatch.ExitCode(err)
	if err != nil && ctx.Err() != nil && code != ratebatch.ExitHalted {
		fmt.Fprintln(p.stderr, "ratebatch: interrupted; what was committed stays, nothing half-written counts, the next run goes on")
		code = ratebatch.ExitInterrupted
	} else if err != nil {
		p.printError(err)
	}
	if err := p.tracer.end(ctx, cmd.CommandPath(), begin, code); err != nil && p.log != nil {
		p.log.WarnContext(ctx, "traces", "error", err)
	}
	p.report(ctx, cmd, begin, code)
	return code
}

// strict makes mistyped subcommands and stray arguments mistakes of the command
// line (exit 2) everywhere. cobra prints the help of a group of commands and
// exits 0, which cron takes for success.
func strict(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		strict(sub)
	}
	see := "see '" + cmd.CommandPath() + " --help'"
	if cmd.HasSubCommands() && !cmd.Runnable() {
		cmd.Args = cobra.ArbitraryArgs
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			hint := see
			if names := cmd.SuggestionsFor(args[0]); len(names) > 0 {
				hint = "did you mean '" + cmd.CommandPath() + " " + names[0] + "'?"
			}
			return &ratebatch.ConfigError{Err: fmt.Errorf("%s has no command %q", cmd.CommandPath(), args[0]), Hint: hint}
		}
		return
	}
	if does := cmd.RunE; does != nil && len(needs[cmd.CommandPath()].flags) > 0 {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if err := missing(cmd); err != nil {
				return err
			}
			return does(cmd, args)
		}
	}
	takes := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if takes == nil || takes(cmd, args) == nil {
			return nil
		}
		if takes(cmd, nil) == nil && len(args) > 0 {
			return &ratebatch.ConfigError{Err: fmt.Errorf("%s does not take the argument %q", cmd.CommandPath(), args[len(args)-1]), Hint: see}
		}
		return &ratebatch.ConfigError{Err: fmt.Errorf("%s: %w", cmd.CommandPath(), takes(cmd, args)), Hint: see}
	}
}

func newRootCmd(p *program) *cobra.Command {
	root := &cobra.Command{
		Use:   "ratebatch",
		Short: "Rate what a cloud's virtual machines used, as a batch job",
		Long: `Ratebatch turns what a cloud's virtual machines used into what each project
owes. Jobs run to completion and exit, so cron, systemd timers and Kubernetes
CronJobs can own them.

Without --clickhouse a command starts the embedded ClickHouse engine over the
folder given by --data (or joins the one that already serves it).

` + exitCodesHelp,
		Version:                    version,
		SilenceUsage:               true,
		SilenceErrors:              true,
		SuggestionsMinimumDistance: 2,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.configure(cmd); err != nil {
				return err
			}
			return p.prepare(cmd)
		},
	}
	root.SetIn(p.stdin)
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &ratebatch.ConfigError{Err: err, Hint: "see '" + cmd.CommandPath() + " --help'"}
	})
	flags := root.PersistentFlags()
	flags.StringVar(&p.engine.URL, "clickhouse", os.Getenv("RATEBATCH_CLICKHOUSE"), "ClickHouse server, as clickhouse://user@host:9000/db or https://…; empty: the embedded engine [RATEBATCH_CLICKHOUSE]")
	flags.StringVar(&p.engine.PasswordFile, "clickhouse-password-file", "", "file with the password for the ClickHouse server; else RATEBATCH_CLICKHOUSE_PASSWORD [RATEBATCH_CLICKHOUSE_PASSWORD_FILE]")
	flags.StringVar(&p.engine.DataDir, "data", envOr("RATEBATCH_DATA", "ratebatch-data"), "folder of the embedded engine's data [RATEBATCH_DATA]")
	flags.StringVar(&p.engine.Database, "database", envOr("RATEBATCH_DATABASE", "ratebatch"), "ClickHouse database [RATEBATCH_DATABASE]")
	flags.StringVar(&p.config, "config", os.Getenv("RATEBATCH_CONFIG"), "configuration file; empty: "+configFile+" if it exists [RATEBATCH_CONFIG]")
	flags.StringVar(&p.telemetry.dir, "metrics-dir", "", "folder of node_exporter's textfile collector: jobs write their metrics there")
	flags.StringVar(&p.telemetry.push, "metrics-push", "", "URL of a Prometheus pushgateway that jobs push their metrics to")
	flags.StringVarP(&p.output, "output", "o", "table", "how to print results: table or json")
	flags.StringVar(&p.logFormat, "log-format", "text", "how to write logs on stderr: text or json")
	flags.BoolVarP(&p.verbose, "verbose", "v", false, "log what is done in detail")
	root.AddCommand(commands(p)...)
	root.AddCommand(operating(p)...)
	maskDefaults(root)
	return root
}

// maskDefaults keeps --help and the references from showing a password that
// stands in a URL of the environment.
func maskDefaults(cmd *cobra.Command) {
	mask := func(f *pflag.Flag) { f.DefValue = jobs.WithoutSecrets([]string{f.DefValue})[0] }
	cmd.PersistentFlags().VisitAll(mask)
	cmd.Flags().VisitAll(mask)
	for _, sub := range cmd.Commands() {
		maskDefaults(sub)
	}
}

const exitCodesHelp = `Exit codes: 0 done or nothing due, 1 unexpected, 2 bad flag, configuration or
plan, 3 done with rejected lines, 11 another run holds the lease, 20 stopped
until a person acts, 75 try again, 130 interrupted.`

func envOr(name, fallback string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return fallback
}

// prepare checks the shared flags and makes the logger.
func (p *program) prepare(*cobra.Command) error {
	level := slog.LevelInfo
	if p.verbose {
		level = slog.LevelDebug
	}
	switch p.logFormat {
	case "text":
		p.log = slog.New(tint.NewTextHandler(p.stderr, &tint.Options{Level: level, TimeFormat: time.TimeOnly, NoColor: !isTerminal(p.stderr)}))
	case "json":
		p.log = slog.New(slog.NewJSONHandler(p.stderr, &slog.HandlerOptions{Level: level}))
	default:
		return &ratebatch.ConfigError{Err: fmt.Errorf("--log-format %q", p.logFormat), Hint: "use text or json"}
	}
	if p.output != "table" && p.output != "json" {
		return &ratebatch.ConfigError{Err: fmt.Errorf("--output %q", p.output), Hint: "use table or json"}
	}
	p.engine.Log = p.log
	return nil
}

// isTerminal says whether a person looks at w.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// printError writes one error to stderr, once, with no stack and no secret.
func (p *program) printError(err error) {
	fmt.Fprintf(p.stderr, "ratebatch: %s\n", escape(strings.TrimSpace(err.Error()), "\n\t"))
}
