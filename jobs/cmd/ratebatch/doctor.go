package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/jobs/topics"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// Levels of what the doctor finds.
const (
	levelOK      = "ok"
	levelSkipped = "skipped" // not configured, or something before it does not work
	levelWarning = "warning"
	levelError   = "error"
)

// finding is one thing that the doctor looked at.
type finding struct {
	Check  string `json:"check"`
	Level  string `json:"level"`
	What   string `json:"what"`
	Remedy string `json:"remedy,omitempty"`
}

func newDoctorCmd(p *program) *cobra.Command {
	o := doctorOptions{topics: topics.Options{Any: true, Partitions: topics.DefaultPartitions, Replication: -1, Retention: topics.DefaultRetention, Segment: topics.DefaultSegment, Mechanism: "SCRAM-SHA-256"}}
	var strictly bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Examine a deployment and say what to do about what is wrong",
		Long: `Doctor looks at the server's version, settings, clock and disks, the schema, whether
the tiers delete usage before it is rated, plans, commits that begin within a period,
stuck leases and runs, parts, the views that fill the tiers, and, where they are
configured, the topics and the place that exports go to. It changes nothing, but for
a small object that it writes there and takes away again.

Exit code 20 says that something is wrong; with --strict a warning counts as well.

` + exitCodesHelp,
		Example: "  ratebatch doctor\n  ratebatch doctor --strict --output json\n  ratebatch doctor --place 's3://finance/rated?endpoint=https://s3.example.org'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.place == "" {
				c, err := loadConfig(p.config, configurable(cmd.Root()))
				if err != nil {
					return err
				}
				o.place = c.values.String("export.to")
			}
			findings := p.examine(cmd.Context(), &o)
			if err := p.print(findings, func() { printFindings(p, findings) }); err != nil {
				return err
			}
			return verdict(findings, strictly)
		},
	}
	f := cmd.Flags()
	o.kafka.addFlags(f)
	addTopicFlags(f, &o.topics.Topics)
	o.rate.addPeriodFlags(cmd)
	f.StringVar(&o.place, "place", "", "where exports go; empty: export.to of the configuration")
	f.BoolVar(&strictly, "strict", false, "exit 20 on warnings as well")
	return cmd
}

type doctorOptions struct {
	kafka  kafkaOptions
	topics topics.Options
	rate   rateOptions
	place  string
}

// verdict is the exit code's error.
func verdict(findings []finding, strictly bool) error {
	n := map[string]int{}
	for _, f := range findings {
		n[f.Level]++
	}
	if n[levelError] > 0 || strictly && n[levelWarning] > 0 {
		return &ratebatch.HaltError{Err: fmt.Errorf("%d errors and %d warnings", n[levelError], n[levelWarning]), Hint: "each finding above says what to do"}
	}
	return nil
}

func printFindings(p *program, findings []finding) {
	w := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "CHECK\tRESULT\tWHAT")
	for _, f := range findings {
		rowf(w, "%s\t%s\t%s\n", f.Check, f.Level, f.What)
		if f.Remedy != "" {
			rowf(w, "\t\t-> %s\n", f.Remedy)
		}
	}
	w.Flush()
}

// examine runs every check. One that fails does not stop the others.
func (p *program) examine(ctx context.Context, o *doctorOptions) []finding {
	var out []finding
	err := p.withStore(ctx, func(ctx context.Context, s *store.Store) error {
		out = append(out, finding{"clickhouse", levelOK, "it answers", ""})
		out = append(out, p.examineServer(ctx, s)...)
		schema := judgeSchema(s.CheckSchema(ctx))
		out = append(out, schema)
		if schema.Level != levelOK {
			out = append(out, finding{"billing", levelSkipped, "needs the schema", ""})
			return nil
		}
		missing, lost, err := s.Missing(ctx)
		out = append(out, found("tables", err, func() []finding { return judgeTables(missing, lost) })...)
		out = append(out, p.examineBilling(ctx, s, o)...)
		return nil
	})
	if err != nil {
		out = append(out, finding{"clickhouse", levelError, err.Error(), "start the server, or correct --clickhouse, --data and the password's file"})
	}
	out = append(out, p.examineTopics(ctx, o)...)
	return append(out, p.examinePlace(ctx, o.place)...)
}

// examineServer looks at what the server is, whatever it holds.
func (p *program) examineServer(ctx context.Context, s *store.Store) []finding {
	var out []finding
	var version string
	out = append(out, found("version", s.Row(ctx, "server_version", nil, &version), func() []finding { return judgeVersion(version) })...)
	settings, err := s.SettingsInForce(ctx)
	out = append(out, found("settings", err, func() []finding { return judgeSettings(settings) })...)
	var server time.Time
	before := p.now()
	err = s.Row(ctx, "server_time", nil, &server)
	after := p.now()
	// Half of the answer's way is as much as can be known.
	out = append(out, found("clock", err, func() []finding { return judgeClock(server.Sub(before.Add(after.Sub(before) / 2))) })...)
	disks, err := s.Disks(ctx)
	return append(out, found("disk", err, func() []finding { return judgeDisks(disks) })...)
}

// examineBilling looks at the state.
func (p *program) examineBilling(ctx context.Context, s *store.Store, o *doctorOptions) []finding {
	var out []finding
	now := p.now()
	options, err := o.rate.options(now)
	if err == nil {
		now = options.Now
		options, err = o.rate.settle(ctx, s, options)
	}
	plans, planErr := s.Versions(ctx, store.PlanVersions)
	out = append(out, found("plan", planErr, func() []finding { return judgeVersions("plan", plans, now) })...)
	sets, setErr := s.Versions(ctx, store.MetricVersions)
	out = append(out, found("metrics", setErr, func() []finding { return judgeVersions("metrics", sets, now) })...)
	var x *status
	if err == nil {
		x, err = readStatus(ctx, p, s, options)
	}
	var oldest time.Time
	var keep time.Duration
	if err == nil {
		oldest, keep, err = s.OldestRatable(ctx, options.Now, options.Period)
	}
	out = append(out, found("retention", err, func() []finding { return judgeRetention(x.Note, x.Oldest, x.Expired, oldest, keep) })...)

	off, err := s.OffGridCommits(ctx)
	out = append(out, found("commits", err, func() []finding { return judgeCommits(off, options.Period) })...)

	now = p.now()
	leases, err := s.SilentLeases(ctx, 2*time.Minute)
	out = append(out, found("leases", err, func() []finding { return judgeLeases(leases) })...)
	runs, err := s.OpenRuns(ctx, now.Add(-7*24*time.Hour), now.Add(-24*time.Hour))
	out = append(out, found("runs", err, func() []finding { return judgeRuns(runs) })...)
	parts, err := s.CrowdedPartitions(ctx, partsMany)
	out = append(out, found("parts", err, func() []finding { return judgeParts(parts) })...)
	views, err := s.TierViews(ctx)
	return append(out, found("views", err, func() []finding { return judgeViews(views) })...)
}

// found judges what was read, or reports that it could not be read.
func found(check string, err error, judge func() []finding) []finding {
	if err != nil {
		return []finding{{check, levelError, "could not be looked at: " + err.Error(), "grant this user SELECT on Ratebatch's database and on the system tables (deploy/clickhouse)"}}
	}
	return judge()
}

func (p *program) examineTopics(ctx context.Context, o *doctorOptions) []finding {
	if !o.kafka.given() {
		return []finding{{"topics", levelSkipped, "no brokers are configured", ""}}
	}
	brokers, err := o.kafka.options(p)
	if err != nil {
		return []finding{{"topics", levelError, err.Error(), "correct the kafka keys of the configuration"}}
	}
	plan, err := (&topics.Job{Brokers: brokers, Options: o.topics, Log: p.log}).Plan(ctx)
	if err != nil {
		var config *ratebatch.ConfigError
		if errors.As(err, &config) {
			return []finding{{"topics", levelWarning, err.Error(), "see 'ratebatch topics apply --dry-run'"}}
		}
		return []finding{{"topics", levelError, err.Error(), "start the brokers, or correct --kafka, the user and the password's file"}}
	}
	return judgeTopics(plan)
}

func (p *program) examinePlace(ctx context.Context, place string) []finding {
	if place == "" {
		return []finding{{"exports", levelSkipped, "no place is configured (export.to)", ""}}
	}
	remedy := "check that the place exists, and the credentials' rights to write, read, list and delete there"
	fail := func(err error) []finding { return []finding{{"exports", levelError, err.Error(), remedy}} }
	b, done, err := openBucket(ctx, place)
	if err != nil {
		return fail(err)
	}
	defer done()
	if err := probe(ctx, b); err != nil {
		return fail(err)
	}
	return []finding{{"exports", levelOK, b.Location() + " can be written, read, listed and tidied up", ""}}
}
