package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/push"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/jobs/rate"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// A job is gone before anybody could scrape it, so what Prometheus should know is
// written to files for node_exporter or pushed when a command ends: how it ended,
// which needs no server, and what the database says of all jobs and scopes.

// telemetry says where metrics go; empty: nowhere.
type telemetry struct {
	dir  string // of node_exporter's textfile collector
	push string // URL of a pushgateway
}

// measured are the commands whose end is written down.
var measured = []string{"close", "doctor", "export", "export-verify", "ingest", "rate", "reconcile", "reprocess-run", "retention", "rollup", "status"}

// commandName is what metrics call a command. A shard is a command of its own, as
// in the run log: what ends one of them must not hide what stopped another.
func commandName(cmd *cobra.Command) string {
	name := strings.Join(strings.Fields(cmd.CommandPath())[1:], "-")
	if f := cmd.Flags().Lookup("shard"); f != nil {
		if shard, err := rate.ParseShard(f.Value.String()); err == nil {
			name = strings.TrimSpace(name + " " + shard.String())
		}
	}
	return name
}

// looks says whether a command was only to show something: it does none of the
// job's work, so its end says nothing of the job.
func looks(cmd *cobra.Command) bool {
	is := func(flag string) bool {
		f := cmd.Flags().Lookup(flag)
		return f != nil && f.Value.String() == "true"
	}
	return is("help") || is("list") || is("dry-run") || cmd.Name() == "status" && !is("check")
}

// report writes the metrics of a command that ended. That they cannot be written
// is logged and changes no exit code: the job is done.
func (p *program) report(ctx context.Context, cmd *cobra.Command, begin time.Time, code int) {
	name := commandName(cmd)
	job, _, _ := strings.Cut(name, " ")
	if !slices.Contains(measured, job) || looks(cmd) {
		return
	}
	// A mistake at a terminal is told to the person there. As a metric it would
	// stay until the job's next turn, a month later for close.
	if code == ratebatch.ExitConfig && isTerminal(p.stderr) {
		return
	}
	// A flag that there is not ends a command before its configuration is read.
	if p.log == nil && (p.configure(cmd) != nil || p.prepare(cmd) != nil) {
		return
	}
	if p.telemetry == (telemetry{}) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	command := prometheus.NewRegistry()
	command.MustRegister(commandMetrics(name, begin, p.now(), code, p.lastGood(name)))
	state := prometheus.NewRegistry()
	// Where the command itself could not reach the server, another wait is in vain.
	if code != ratebatch.ExitTryAgain && code != ratebatch.ExitConfig && code != ratebatch.ExitInterrupted {
		if err := p.withStore(ctx, func(ctx context.Context, s *store.Store) error {
			c, err := readState(ctx, s, p.now())
			if err == nil {
				state.MustRegister(c)
			}
			return err
		}); err != nil {
			p.log.WarnContext(ctx, "metrics of the state", "error", err)
		}
	}
	err := p.telemetry.write(ctx, name, command, state)
	if job == "rate" && (code == ratebatch.ExitDone || code == ratebatch.ExitRejected) {
		err = errors.Join(err, p.telemetry.forgetOtherShards(name))
	}
	if err != nil {
		p.log.WarnContext(ctx, "metrics", "error", err)
	}
}

func (t telemetry) write(ctx context.Context, name string, command, state *prometheus.Registry) error {
	families, err := state.Gather()
	if err != nil {
		return err
	}
	var errs []error
	if t.dir != "" {
		errs = append(errs, prometheus.WriteToTextfile(t.file(name), command))
		if len(families) > 0 {
			errs = append(errs, prometheus.WriteToTextfile(filepath.Join(t.dir, "ratebatch.prom"), state))
		}
	}
	if t.push != "" {
		// Add leaves what is not sent now, such as the last success of a failed job.
		errs = append(errs, push.New(t.push, "ratebatch").Grouping("source", name).Gatherer(command).AddContext(ctx))
		if len(families) > 0 {
			errs = append(errs, push.New(t.push, "ratebatch").Gatherer(state).PushContext(ctx))
		}
	}
	return errors.Join(errs...)
}

// file is where a command's own metrics are.
func (t telemetry) file(name string) string {
	return filepath.Join(t.dir, "ratebatch-"+strings.NewReplacer(" ", "-", "/", "-of-").Replace(name)+".prom")
}

// forgetOtherShards removes what rate left when it was cut into another number of
// shards, or not at all: those commands run no more, and would seem to be late.
func (t telemetry) forgetOtherShards(name string) error {
	if t.dir == "" {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(t.dir, "ratebatch-rate*.prom"))
	if err != nil {
		return err
	}
	_, count, _ := strings.Cut(name, "/")
	var errs []error
	for _, file := range files {
		if _, of, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".prom"), "-of-"); of == count {
			continue
		}
		if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) { // another shard may have been faster
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// lastGood is when a command last ended well, by the file that it wrote then.
func (p *program) lastGood(name string) float64 {
	if p.telemetry.dir == "" {
		return 0
	}
	f, err := os.Open(p.telemetry.file(name))
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			p.log.Warn("metrics", "error", err)
		}
		return 0
	}
	defer f.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(f)
	if err != nil {
		return 0 // it is written anew
	}
	if family := families["ratebatch_command_last_success_timestamp_seconds"]; family != nil && len(family.GetMetric()) == 1 {
		return family.GetMetric()[0].GetGauge().GetValue()
	}
	return 0
}

// gauges is a collector of values that were read before.
type gauges []prometheus.Metric

// Describe implements prometheus.Collector; the metrics are unchecked.
func (gauges) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (g gauges) Collect(out chan<- prometheus.Metric) {
	for _, m := range g {
		out <- m
	}
}

// add appends a gauge; labels are names and values in turn.
func (g *gauges) add(name, help string, value float64, labels ...string) {
	constant := prometheus.Labels{}
	for i := 0; i < len(labels); i += 2 {
		constant[labels[i]] = strings.ToValidUTF8(labels[i+1], "�")
	}
	*g = append(*g, prometheus.MustNewConstMetric(prometheus.NewDesc("ratebatch_"+name, help, nil, constant), prometheus.GaugeValue, value))
}

func unix(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

func commandMetrics(name string, begin, end time.Time, code int, lastGood float64) gauges {
	var g gauges
	g.add("command_last_end_timestamp_seconds", "When the command last ended.", unix(end), "command", name)
	g.add("command_last_duration_seconds", "How long it took.", end.Sub(begin).Seconds(), "command", name)
	g.add("command_last_exit_code", "Its exit code: 0 done, 3 done with rejected lines, 11 another run holds the lease, 20 stopped until a person acts, 75 try again.", float64(code), "command", name)
	if code == ratebatch.ExitDone || code == ratebatch.ExitRejected {
		lastGood = unix(end)
	}
	if lastGood > 0 {
		g.add("command_last_success_timestamp_seconds", "When it last ended with 0 or 3.", lastGood, "command", name)
	}
	return g
}

// lagQuantiles are those of how far scopes are behind; 1 is the worst.
var lagQuantiles = []float64{0.5, 0.9, 0.99, 1}

// readState makes metrics of what the database says.
func readState(ctx context.Context, s *store.Store, now time.Time) (gauges, error) {
	var g gauges
	jobs, err := s.EndedJobs(ctx)
	if err != nil {
		return nil, err
	}
	for _, j := range jobs {
		g.add("job_last_end_timestamp_seconds", "When the job's last run ended.", unix(j.End), "name", j.Job)
		g.add("job_last_duration_seconds", "How long it took.", j.End.Sub(j.Start).Seconds(), "name", j.Job)
		g.add("job_last_failed", "1 if it failed.", truth(j.State == "failed"), "name", j.Job)
		if j.LastSuccess.Unix() > 0 {
			g.add("job_last_success_timestamp_seconds", "When the job last ended well.", unix(j.LastSuccess), "name", j.Job)
		}
		for _, what := range slices.Sorted(mapKeys(j.Counts)) {
			if n, err := strconv.ParseFloat(j.Counts[what], 64); err == nil {
				g.add("job_last_count", "What the job's last run counted: lines, rejected, late, unpriced, …", n, "name", j.Job, "what", what)
			}
		}
	}
	scopes, err := s.ScopeStatuses(ctx)
	if err != nil {
		return nil, err
	}
	states, err := s.ScopeStates(ctx)
	if err != nil {
		return nil, err
	}
	g.scopes(scopes, states, now)
	marks, err := s.Watermarks(ctx)
	if err != nil {
		return nil, err
	}
	for _, region := range slices.Sorted(mapKeys(marks)) {
		g.add("watermark_lag_seconds", "How far the region's input is complete, as an age.", now.Sub(marks[region].CompleteUntil).Seconds(), "region", region)
	}
	late, err := s.LateOpen(ctx)
	if err != nil {
		return nil, err
	}
	kinds := map[string]float64{"late": 0, "lost": 0}
	for _, f := range late {
		kinds[f.Kind]++
	}
	for _, kind := range slices.Sorted(mapKeys(kinds)) {
		g.add("late_periods", "Rated periods whose usage changed behind the commit (late) or went away (lost), not settled.", kinds[kind], "kind", kind)
	}
	if err := g.ingest(ctx, s, now); err != nil {
		return nil, err
	}
	b, err := s.Billing(ctx)
	if err != nil {
		return nil, err
	}
	months, err := readMonthsLeft(ctx, s, b.Calendar, now)
	if err != nil {
		return nil, err
	}
	g.add("closed_months_unexported", "Closed months that were not exported since they were closed, where anything is exported.", float64(len(months.unexported)))
	if months.closes {
		g.add("month_open_seconds", "How long ago the earliest month ended that was rated and is not closed; 0: all that have ended are closed.", months.openFor(now).Seconds())
	}
	return g, nil
}

// troubleFor is how long after it was found the metrics show what ingest had
// trouble with: a run's own counts are gone with the next run, and those of one
// that follows come only when it ends.
const troubleFor = 24 * time.Hour

// ingest adds what became of the agents' records lately, from the tables that
// status reads.
func (g *gauges) ingest(ctx context.Context, s *store.Store, now time.Time) error {
	losses, err := s.Losses(ctx, now.Add(-troubleFor))
	if err != nil {
		return err
	}
	var lost int64
	for _, l := range losses {
		lost += max(1, l.ToOffset-l.FromOffset) // -1: not known how many
	}
	rejected, _, err := s.IngestLeftovers(ctx, now.Add(-troubleFor))
	if err != nil {
		return err
	}
	g.add("ingest_lost_records", "Records that Kafka had lost before they were ingested, found in the last 24 hours; at least one for each place.", float64(lost))
	g.add("ingest_rejected_records", "Records that did not decode, ingested in the last 24 hours.", float64(rejected))
	return nil
}

func (g *gauges) scopes(scopes []store.ScopeStatus, states map[string]store.ScopeState, now time.Time) {
	lags := map[string]float64{}
	prices, unpriced, rejected := map[string]float64{}, uint64(0), uint64(0)
	known := map[string]bool{}
	for _, s := range scopes {
		known[s.Scope] = true
		// A scope that is disabled is not rated on, so it is not behind.
		if state, ok := states[s.Scope]; !ok || state.Active {
			lag := now.Sub(s.RatedUntil).Seconds()
			if least, ok := lags[s.Scope]; !ok || lag < least {
				lags[s.Scope] = lag
			}
		}
		price, _ := s.Price.Float64() // a picture of the exact total, for graphs
		prices[s.Currency] += price
		unpriced, rejected = unpriced+s.Unpriced, rejected+s.Rejected
	}
	g.add("scopes", "Scopes with rated periods.", float64(len(known)))
	ages := slices.Sorted(mapValues(lags))
	for _, q := range lagQuantiles {
		if len(ages) > 0 {
			at := min(len(ages)-1, int(q*float64(len(ages))))
			g.add("rated_lag_seconds", "How long ago the newest rated period of a scope ended, by quantile over scopes that are not disabled.", ages[at], "share", fmt.Sprint(q))
		}
	}
	for _, currency := range slices.Sorted(mapKeys(prices)) {
		g.add("rated_price", "Sum of all current lines, rounded for graphs; bills are read from exports.", prices[currency], "currency", currency)
	}
	g.add("rated_unpriced_rows", "Usage rows of current periods that no rule prices.", float64(unpriced))
	g.add("rated_rejected_rows", "Usage rows of current periods that were rejected.", float64(rejected))
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
