package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// version is set by the linker (see the Makefile); it comes from git.
var version = "dev"

// Exit codes.
const (
	exitDone        = 0   // done; for run: stopped by SIGTERM or SIGINT
	exitFailed      = 1   // check found something wrong, or something unexpected
	exitConfig      = 2   // bad flag or configuration; nothing was touched
	exitInterrupted = 130 // once or check was interrupted
)

// program is what the commands share.
type program struct {
	stdout, stderr io.Writer
	getenv         func(string) string
	now            func() time.Time
	flags          map[string]string // what was given on the command line, by flag
	output         string
	log            *slog.Logger
	config         config
}

// configError is a mistake in flags, environment or file.
type configError struct{ error }

func (e configError) Unwrap() error { return e.error }

// errFound says that check has printed what is wrong.
var errFound = errors.New("something is wrong, see above")

// run executes one command line and returns its exit code. Tests call it
// in-process.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	p := &program{stdout: stdout, stderr: stderr, getenv: os.Getenv, now: time.Now, flags: map[string]string{}}
	root := newRootCmd(p)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var bad configError
	switch {
	case err == nil:
		return exitDone
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "ratebatch-agent: interrupted")
		return exitInterrupted
	case errors.As(err, &bad):
		fmt.Fprintf(stderr, "ratebatch-agent: %s\n", strings.TrimSpace(err.Error()))
		return exitConfig
	}
	fmt.Fprintf(stderr, "ratebatch-agent: %s\n", strings.TrimSpace(err.Error()))
	return exitFailed
}

func newRootCmd(p *program) *cobra.Command {
	var once bool
	root := &cobra.Command{
		Use:   "ratebatch-agent",
		Short: "Meter the virtual machines of a compute node",
		Long: `ratebatch-agent asks libvirt once a minute what each virtual machine has used,
OVN whose network ports they are, and sends the differences to Kafka. It keeps
its last readings and what Kafka has not acknowledged in --state-dir, so neither
its own restart nor an outage of Kafka loses an interval.

Settings come from a YAML file (--config), then the environment, then flags.
Without a command it does what 'run' does, or 'once' with --once.

Exit codes: 0 done or stopped, 1 check found something wrong, 2 bad flag or
configuration, 130 interrupted.`,
		Example:       "  ratebatch-agent check --no-ovn\n  ratebatch-agent once --no-ovn\n  ratebatch-agent run --config /etc/ratebatch/agent.yaml",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return configError{fmt.Errorf("there is no command %q: the commands are run, once and check", args[0])}
			}
			return nil
		},
		PersistentPreRunE: func(*cobra.Command, []string) error { return p.prepare() },
		RunE: func(cmd *cobra.Command, _ []string) error {
			if once {
				return p.once(cmd.Context(), defaultWait)
			}
			return p.run(cmd.Context())
		},
	}
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return configError{fmt.Errorf("%w: see '%s --help'", err, cmd.CommandPath())}
	})
	flags := root.PersistentFlags()
	flags.SortFlags = false
	for _, s := range settings {
		flags.Var(&flagValue{name: s.flag, given: p.flags, kind: s.kind}, s.flag, s.help+" ["+s.env+"]")
		if s.kind == "bool" {
			flags.Lookup(s.flag).NoOptDefVal = "true"
		}
	}
	flags.StringVarP(&p.output, "output", "o", "table", "how check prints: table or json")
	// The specification's agent was told what to do by these two.
	root.Flags().BoolVar(&once, "once", false, "the same as the command once")
	root.PersistentFlags().Bool("publish-kafka", true, "accepted for the sake of old command lines: run always publishes, once never")
	root.AddCommand(
		&cobra.Command{
			Use: "run", Short: "Poll and publish until stopped",
			Long: "Run polls every --poll-interval, aligned to the clock, and publishes until SIGTERM.\n\n" +
				"Exit codes: 0 stopped by a signal, 1 unexpected, 2 bad flag or configuration.",
			Example: "  ratebatch-agent run --config /etc/ratebatch/agent.yaml", Args: noArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return p.run(cmd.Context()) },
		},
		newOnceCmd(p),
		&cobra.Command{
			Use: "check", Short: "Connect to everything and say what is wrong",
			Long: "Check connects to libvirt, OVN and Kafka, looks at the state directory, and says\n" +
				"what is wrong and how to mend it. It sends nothing.\n\n" +
				"Exit codes: 0 all is well, 1 something is wrong, 2 bad flag or configuration,\n130 interrupted.",
			Example: "  ratebatch-agent check --no-ovn\n  ratebatch-agent check --config /etc/ratebatch/agent.yaml --output json", Args: noArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return p.check(cmd.Context()) },
		},
	)
	return root
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return configError{fmt.Errorf("%s does not take the argument %q", cmd.CommandPath(), args[0])}
	}
	return nil
}

// prepare reads the settings and makes the logger.
func (p *program) prepare() error {
	c, err := load(p.flags, p.getenv)
	if err != nil {
		return configError{err}
	}
	if p.output != "table" && p.output != "json" {
		return configError{fmt.Errorf("--output %q: use table or json", p.output)}
	}
	p.config = c
	options := &slog.HandlerOptions{Level: slog.LevelInfo}
	if c.Verbose {
		options.Level = slog.LevelDebug
	}
	p.log = slog.New(slog.NewTextHandler(p.stderr, options))
	if c.LogFormat == "json" {
		p.log = slog.New(slog.NewJSONHandler(p.stderr, options))
	}
	return nil
}

// flagValue notes that a flag was given. It never shows a value: help, errors
// and completions print what String gives, and some flags are secrets.
type flagValue struct {
	name, kind string
	given      map[string]string
}

func (f *flagValue) String() string { return "" }

func (f *flagValue) Set(value string) error {
	f.given[f.name] = value
	return nil
}

func (f *flagValue) Type() string { return f.kind }

// IsBoolFlag lets --no-ovn stand without a value.
func (f *flagValue) IsBoolFlag() bool { return f.kind == "bool" }
