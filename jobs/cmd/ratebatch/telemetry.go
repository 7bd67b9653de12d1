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
var measured = []string{"close", "doctor", "export", "ingest", "rate", "reconcile", "reprocess", "retention", "rollup", "status"}

// report writes the metrics of a command that ended. That they cannot be written
// is logged and changes no exit code: the job is done.
func (p *program) report(ctx context.Context, cmd *cobra.Command, begin time.Time, code int) {
	name := strings.Join(strings.Fields(cmd.CommandPath())[1:], "-")
	job, _, _ := strings.Cut(name, "-")
	if p.telemetry == (telemetry{}) || !slices.Contains(measured, job) || p.log == nil {
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
	if err := p.telemetry.write(ctx, name, command, state); err != nil {
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

func (t telemetry) file(name string) string {
	return filepath.Join(t.dir, "ratebatch-"+name+".prom")
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
	if err := g.scopes(scopes, now); err != nil {
		return nil, err
	}
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
	return g, nil
}

func (g *gauges) scopes(scopes []store.ScopeStatus, now time.Time) error {
	lags := map[string]float64{}
	prices, unpriced, rejected := map[string]float64{}, uint64(0), uint64(0)
	for _, s := range scopes {
		lag := now.Sub(s.RatedUntil).Seconds()
		if known, ok := lags[s.Scope]; !ok || lag < known {
			lags[s.Scope] = lag
		}
		price, _ := s.Price.Float64() // a picture of the exact total, for graphs
		prices[s.Currency] += price
		unpriced, rejected = unpriced+s.Unpriced, rejected+s.Rejected
	}
	g.add("scopes", "Scopes with rated periods.", float64(len(lags)))
	ages := slices.Sorted(mapValues(lags))
	for _, q := range lagQuantiles {
		if len(ages) > 0 {
			at := min(len(ages)-1, int(q*float64(len(ages))))
			g.add("rated_lag_seconds", "How long ago the newest rated period of a scope ended, by quantile over scopes.", ages[at], "share", fmt.Sprint(q))
		}
	}
	for _, currency := range slices.Sorted(mapKeys(prices)) {
		g.add("rated_price", "Sum of all current lines, rounded for graphs; bills are read from exports.", prices[currency], "currency", currency)
	}
	g.add("rated_unpriced_rows", "Usage rows of current periods that no rule prices.", float64(unpriced))
	g.add("rated_rejected_rows", "Usage rows of current periods that were rejected.", float64(rejected))
	return nil
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
