package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/schedules"
)

func newScheduleCmd(p *program) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "schedule",
		Short: "Run the jobs at their times, or write units, CronJobs or crontab lines that do",
		Long: `A schedule is one YAML file: jobs, cron expressions (UTC unless it says
otherwise), arguments, timeouts. Without --file the built-in one is used, which
'ratebatch schedule default' prints.

` + exitCodesHelp,
		Example: "  ratebatch schedule next\n  ratebatch schedule render systemd --out /etc/systemd/system\n  ratebatch schedule run",
	}
	cmd.PersistentFlags().StringVar(&file, "file", os.Getenv("RATEBATCH_SCHEDULE"), "schedule file; empty: the built-in schedule [RATEBATCH_SCHEDULE]")
	cmd.AddCommand(newScheduleRunCmd(p, &file), newScheduleRenderCmd(p, &file), newScheduleNextCmd(p, &file), newScheduleDefaultCmd(p), newScheduleSchemaCmd(p))
	return cmd
}

// loadSchedule reads the schedule and checks that each job's arguments are a
// command line of this program: a typing error must not wait for three in the
// morning.
func (p *program) loadSchedule(name string) (*schedules.File, error) {
	f, err := schedules.Load(name)
	if err != nil {
		return nil, err
	}
	var errs []error
	for i := range f.Jobs {
		j := &f.Jobs[i]
		if err := checkCommandLine(j.Args); err != nil {
			errs = append(errs, fmt.Errorf("job %s: %w", j.Name, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, &ratebatch.ConfigError{Err: err}
	}
	return f, nil
}

// checkCommandLine parses a command line without running it.
func checkCommandLine(args []string) error {
	root := newRootCmd(&program{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard, now: time.Now, log: slog.New(slog.DiscardHandler)})
	strict(root)
	cmd, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	if !cmd.Runnable() || cmd.HasSubCommands() && cmd.Name() != "export" {
		return fmt.Errorf("%q is no command to run", strings.Join(args, " "))
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return fmt.Errorf("%s: %w", cmd.CommandPath(), err)
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}

func newScheduleRunCmd(p *program, file *string) *cobra.Command {
	var listen string
	var drain time.Duration
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Start the jobs at their times until it is told to end",
		Long: `Run is a small daemon for machines without timers or CronJobs. There are never
two runs of a job; of several daemons one runs the schedule (a lease says which)
and the others stand by. Runs that were missed while no daemon ran are made up for
once at start, in the order of the file: the run log knows them.

SIGTERM ends it after what runs has ended; --drain bounds the wait, and a second
signal ends what runs. /healthz and /metrics are served on --listen.

` + exitCodesHelp,
		Example: "  ratebatch schedule run\n  ratebatch schedule run --file /etc/ratebatch/schedule.yaml --listen 127.0.0.1:9477",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := p.loadSchedule(*file)
			if err != nil {
				return err
			}
			return p.scheduleRun(cmd.Context(), f, listen, drain)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", envOr("RATEBATCH_SCHEDULE_LISTEN", "127.0.0.1:9477"), "address of /healthz and /metrics; empty: none [RATEBATCH_SCHEDULE_LISTEN]")
	cmd.Flags().DurationVar(&drain, "drain", 0, "how long SIGTERM waits for what runs; 0: until it ends or its timeout does it")
	return cmd
}

func (p *program) scheduleRun(ctx context.Context, f *schedules.File, listen string, drain time.Duration) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	command := []string{self, "--log-format", p.logFormat}
	if p.verbose {
		command = append(command, "--verbose")
	}
	state := &scheduleState{p: p}
	defer func() { state.close(context.WithoutCancel(ctx)) }()
	hurry := make(chan struct{})
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	ctx, end := context.WithCancel(ctx)
	defer end()
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for _, then := range []func(){end, func() { close(hurry) }} {
			select {
			case <-signals:
				then()
			case <-ended:
				return
			}
		}
	}()
	d := &schedules.Daemon{
		File: f, State: state, Log: p.log, Now: p.now, Drain: drain, Hurry: hurry,
		Runner: &schedules.Exec{Command: command, Env: p.childEnvironment(), Stdout: p.stdout, Stderr: p.stderr},
		Jitter: func(most time.Duration) time.Duration { return rand.N(most) },
	}
	if listen != "" {
		var config net.ListenConfig
		l, err := config.Listen(ctx, "tcp", listen)
		if err != nil {
			return &ratebatch.ConfigError{Err: fmt.Errorf("--listen: %w", err), Hint: "name another address, or --listen '' for none"}
		}
		server := &http.Server{Handler: d.Handler(), ReadHeaderTimeout: 5 * time.Second}
		served := make(chan error, 1)
		go func() { served <- server.Serve(l) }()
		defer func() {
			_ = server.Close()
			if err := <-served; !errors.Is(err, http.ErrServerClosed) {
				p.log.WarnContext(ctx, "health and metrics", "error", err)
			}
		}()
		p.log.InfoContext(ctx, "health and metrics", "listen", l.Addr().String())
	}
	return d.Run(ctx)
}

// childEnvironment hands the shared flags to jobs. They go by the environment:
// a URL may hold a password, and arguments can be read by every user.
func (p *program) childEnvironment() []string {
	return append(os.Environ(), "RATEBATCH_CLICKHOUSE="+p.engine.URL, "RATEBATCH_DATA="+p.engine.DataDir, "RATEBATCH_DATABASE="+p.engine.Database,
		"RATEBATCH_CLICKHOUSE_PASSWORD_FILE="+p.engine.PasswordFile, "RATEBATCH_CONFIG="+p.config,
		"RATEBATCH_METRICS_DIR="+p.telemetry.dir, "RATEBATCH_METRICS_PUSH="+p.telemetry.push)
}

func newScheduleRenderCmd(p *program, file *string) *cobra.Command {
	var out string
	var check bool
	cmd := &cobra.Command{
		Use:   "render " + strings.Join(schedules.Targets(), "|"),
		Short: "Write the schedule as systemd units, Kubernetes CronJobs or a crontab",
		Long: `Render writes one file per unit into --out, or all of them to stdout. The same
schedule gives the same bytes. What was rendered there for a job that is no more is
removed; files of others stay. --check writes nothing and exits 2 when the folder
differs from the schedule.

` + exitCodesHelp,
		Example:   "  ratebatch schedule render systemd --out /etc/systemd/system\n  ratebatch schedule render kubernetes --out deploy/kubernetes/base/jobs --check\n  ratebatch schedule render crontab > /etc/cron.d/ratebatch",
		Args:      cobra.ExactArgs(1),
		ValidArgs: schedules.Targets(),
		RunE: func(_ *cobra.Command, args []string) error {
			f, err := p.loadSchedule(*file)
			if err != nil {
				return err
			}
			files, err := f.Render(args[0])
			if err != nil {
				return err
			}
			return p.writeRendered(files, args[0], out, check)
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "folder to write to; empty: stdout")
	cmd.Flags().BoolVar(&check, "check", false, "compare the folder with the schedule; exit 2 if they differ")
	return cmd
}

func (p *program) writeRendered(files []schedules.Rendered, target, out string, check bool) error {
	switch {
	case check && out == "":
		return &ratebatch.ConfigError{Err: errors.New("--check needs a folder"), Hint: "name it with --out"}
	case check:
		differences, err := schedules.Differences(out, files)
		if err != nil {
			return err
		}
		if len(differences) > 0 {
			return &ratebatch.ConfigError{Err: fmt.Errorf("%s is not what the schedule gives: %s", out, strings.Join(differences, ", ")),
				Hint: fmt.Sprintf("'ratebatch schedule render %s --out %s' writes it", target, out)}
		}
		return nil
	case out != "":
		return schedules.Write(out, files)
	}
	for i, f := range files {
		if target == "kubernetes" && f.Name == "kustomization.yaml" {
			continue // it names files; the stream is for kubectl apply -f -
		}
		if i > 0 && target == "kubernetes" {
			fmt.Fprintln(p.stdout, "---")
		} else if target == "systemd" {
			fmt.Fprintf(p.stdout, "# %s\n", f.Name)
		}
		if _, err := p.stdout.Write(f.Text); err != nil {
			return err
		}
	}
	return nil
}

func newScheduleNextCmd(p *program, file *string) *cobra.Command {
	var n int
	var from string
	cmd := &cobra.Command{
		Use:     "next",
		Short:   "List the coming runs",
		Long:    "Next lists when which job runs, the earliest first. It needs no server.\n\n" + exitCodesHelp,
		Example: "  ratebatch schedule next\n  ratebatch schedule next -n 50 --from 2026-12-01 --output json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			f, err := p.loadSchedule(*file)
			if err != nil {
				return err
			}
			at := p.now()
			if from != "" {
				if at, err = parseMoment("from", from); err != nil {
					return err
				}
			}
			if n < 1 || n > 10_000 {
				return &ratebatch.ConfigError{Err: fmt.Errorf("--number %d", n), Hint: "use 1 to 10000"}
			}
			slots := f.Next(at, n)
			return p.print(slots, func() {
				w := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
				fmt.Fprintln(w, "WHEN\tIN\tJOB\tCOMMAND")
				for _, s := range slots {
					rowf(w, "%s\t%s\t%s\tratebatch %s\n", s.At.Format(time.RFC3339), s.At.Sub(at).Round(time.Minute), s.Job, strings.Join(s.Args, " "))
				}
				w.Flush()
			})
		},
	}
	cmd.Flags().IntVarP(&n, "number", "n", 10, "how many")
	cmd.Flags().StringVar(&from, "from", "", "list runs after this moment instead of now")
	return cmd
}

func newScheduleDefaultCmd(p *program) *cobra.Command {
	return &cobra.Command{
		Use: "default", Short: "Print the built-in schedule, to start from", Args: cobra.NoArgs,
		Long:    "Default prints the schedule that is used where no file is named.\n\n" + exitCodesHelp,
		Example: "  ratebatch schedule default > schedule.yaml",
		RunE: func(*cobra.Command, []string) error {
			_, err := p.stdout.Write(schedules.Default)
			return err
		},
	}
}

func newScheduleSchemaCmd(p *program) *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON schema of schedule files, for editors", Args: cobra.NoArgs,
		Long:    "Schema prints the JSON schema of schedule files.\n\n" + exitCodesHelp,
		Example: "  ratebatch schedule schema > schedule.schema.json",
		RunE: func(*cobra.Command, []string) error {
			text, err := schedules.Schema()
			if err == nil {
				_, err = p.stdout.Write(text)
			}
			return err
		},
	}
}
