package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/ratebatch/ratebatch/fixtures/bench"
	"github.com/ratebatch/ratebatch/jobs/rate"
	"github.com/ratebatch/ratebatch/ratebatch/engine"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// growth is the work of the series: one rate over usage of more and more rows,
// and over the same rows in more and more scopes.
type growth struct {
	rows       []int // usage rows, of 20,000 instances in 500 scopes
	scopes     []int // scopes that scopedRows are spread over
	scopedRows int
	months     int // of history, each of monthRows
	monthRows  int
}

var (
	growthQuick  = growth{rows: []int{20_000, 40_000}, scopes: []int{10, 100}, scopedRows: 20_000, months: 4, monthRows: 7_200}
	growthMiddle = growth{rows: []int{1_000_000, 4_000_000}, scopes: []int{100, 1_000, 10_000}, scopedRows: 1_000_000, months: 13, monthRows: 36_000}
	growthFull   = growth{rows: []int{1_000_000, 4_000_000, 14_400_000, 40_000_000}, scopes: []int{100, 1_000, 10_000}, scopedRows: 2_000_000, months: 13, monthRows: 1_008_000}
)

// benchGrowth rates usage of each size once, in a process of its own and over
// an engine of its own, and says how speed and memory change.
func benchGrowth(ctx context.Context, p *program, dir string, size benchSize) ([]bench.Figure, []bench.Series, error) {
	var figures []bench.Figure
	var series []bench.Series
	for _, x := range []struct {
		name, label string
		sizes       []int
		shape       func(n int) (scopes, instances, hours int)
	}{
		{"rows", "usage rows", size.growth.rows, func(n int) (int, int, int) {
			scopes, instances := 500, 40
			if n < 1_000_000 {
				scopes, instances = 50, 20
			}
			return scopes, instances, n / (scopes * instances)
		}},
		{"scopes", "scopes, of the same usage rows", size.growth.scopes, func(n int) (int, int, int) {
			hours := 100
			return n, max(1, size.growth.scopedRows/hours/n), hours
		}},
	} {
		speed := bench.Series{Name: "rate_speed_by_" + x.name, X: x.label, Y: "usage rows/s"}
		job := bench.Series{Name: "rate_job_memory_by_" + x.name, X: x.label, Y: "MiB, peak of the job"}
		of := bench.Series{Name: "rate_engine_memory_by_" + x.name, X: x.label, Y: "MiB, peak of the engine"}
		for _, n := range x.sizes {
			scopes, instances, hours := x.shape(n)
			run, err := rateGrown(ctx, p, filepath.Join(dir, x.name+strconv.Itoa(n)), scopes, instances, hours)
			if err != nil {
				return nil, nil, fmt.Errorf("%d %s: %w", n, x.name, err)
			}
			at := float64(n)
			speed.Points = append(speed.Points, bench.Point{X: at, Y: float64(run.Lines) / run.Seconds})
			job.Points = append(job.Points, bench.Point{X: at, Y: run.jobPeak})
			of.Points = append(of.Points, bench.Point{X: at, Y: run.enginePeak})
		}
		first, last := speed.Points[0], speed.Points[len(speed.Points)-1]
		figures = append(figures, bench.Figure{Name: speed.Name, Value: last.Y, Unit: fmt.Sprintf("rows/s at %.3g %s; ratio: slower than at %.3g", last.X, x.name, first.X), Ratio: first.Y / last.Y, Runs: 1},
			bench.Figure{Name: job.Name, Value: job.Points[len(job.Points)-1].Y, Unit: fmt.Sprintf("MiB at %.3g %s", last.X, x.name), Limit: 300, Runs: 1},
			bench.Figure{Name: of.Name, Value: of.Points[len(of.Points)-1].Y, Unit: fmt.Sprintf("MiB at %.3g %s", last.X, x.name), Limit: 3072, Runs: 1})
		series = append(series, speed, job, of)
	}
	return figures, series, nil
}

func rateGrown(ctx context.Context, p *program, dir string, scopes, instances, hours int) (out ratedItself, err error) {
	err = benchDatabase(ctx, p, dir, func(e *engine.Engine, s *store.Store) error {
		if err := bench.HourlyUsage(ctx, e.Conn(), scopes, instances, hours, 40); err != nil {
			return err
		}
		until := bench.UsageBegin.Add(time.Duration(hours) * time.Hour)
		if err := readyToRate(ctx, s, until); err != nil {
			return err
		}
		err := keepRawAsOperatorsDo(ctx, s)
		if err != nil {
			return err
		}
		if out, err = rateItself(ctx, p, dir, until); err != nil {
			return err
		}
		if rows := scopes * instances * hours; out.Lines != uint64(rows) {
			return fmt.Errorf("%d lines were rated of %d usage rows", out.Lines, rows)
		}
		return nil
	})
	return out, err
}

// readyToRate stores the bench's plan and metric and says that usage is
// complete until then.
func readyToRate(ctx context.Context, s *store.Store, until time.Time) error {
	if err := addVersions(ctx, s, benchPlan(func(i int) string { return fmt.Sprintf("0.%02d", i+1) }), benchMetrics("1"), time.Unix(0, 0)); err != nil {
		return err
	}
	return completeUntil(ctx, s, until)
}

// benchHistory asks whether history makes rating slower: the time of the last
// three months against the first three, each rated on top of those before it,
// and of an hourly run on top of all months against one on top of the first.
// Months are those of the calendar, as a pass notes what it rates by month; their
// times are as of 30 days. The hours' usage and that before them is a day old: a
// year of it did not come within the hour before.
func benchHistory(ctx context.Context, p *program, dir string, size benchSize) (figures []bench.Figure, err error) {
	const hours = 30 * 24
	err = benchDatabase(ctx, p, dir, func(e *engine.Engine, s *store.Store) error {
		scopes := min(500, size.growth.monthRows/hours)
		instances := size.growth.monthRows / hours / scopes
		begin := bench.UsageBegin
		if err := readyToRate(ctx, s, begin); err != nil {
			return err
		}
		timed := func(until time.Time) (time.Duration, error) {
			if err := completeUntil(ctx, s, until); err != nil {
				return 0, err
			}
			job := &rate.Job{Store: s, Log: p.log, Options: benchOptions(until)}
			started := time.Now()
			result, err := p.runRate(ctx, job, jobOptions{})
			if err == nil && result.Periods == 0 {
				err = fmt.Errorf("nothing was due until %s", until.Format(time.RFC3339))
			}
			return time.Since(started), err
		}
		var months []time.Duration
		var hourly [2][]time.Duration // on top of the first month, and of all
		for month := range size.growth.months {
			single := 0 // hours of the next month that are rated one by one
			if month == 0 || month == size.growth.months-1 {
				single = size.runs + 1 // the first is not steady yet
			}
			end := bench.UsageBegin.AddDate(0, month+1, 0)
			rest := int(end.Sub(begin) / time.Hour)
			if err := bench.HourlyUsageFrom(ctx, e.Conn(), begin, scopes, instances, rest+single, 40); err != nil {
				return err
			}
			begin = end
			took, err := timed(begin)
			if err != nil {
				return err
			}
			months = append(months, took*hours/time.Duration(rest))
			if single > 0 {
				if err := bench.AgeUsage(ctx, e.Conn()); err != nil {
					return err
				}
			}
			for i := range single {
				begin = begin.Add(time.Hour)
				took, err := timed(begin)
				if err != nil {
					return err
				}
				if i > 0 {
					hourly[min(month, 1)] = append(hourly[min(month, 1)], took)
				}
			}
		}
		few := min(3, len(months)/2)
		last, spread := bench.Median(months[len(months)-few:])
		hour, hourSpread := bench.Median(hourly[1])
		figures = []bench.Figure{
			{Name: "last_month_vs_first", Value: last.Seconds(), Unit: fmt.Sprintf("s, months %d to %d", len(months)-few+1, len(months)), Ratio: bench.MedianRatio(months[len(months)-few:], months[:few]), Limit: 1.15, Runs: few, Spread: spread},
			{Name: "hour_after_all_vs_first_month", Value: hour.Seconds(), Unit: "s", Ratio: bench.MedianRatio(hourly[1], hourly[0]), Limit: 1.15, Runs: size.runs, Spread: hourSpread},
		}
		return nil
	})
	return figures, err
}

// benchPeer does the work that CloudKitty's own code was measured with (25
// rules, 1,000 points a scope and period) and says how many times faster it is,
// from hourly usage to committed lines.
func benchPeer(ctx context.Context, p *program, dir string, size benchSize) (figures []bench.Figure, err error) {
	// CloudKitty's processor end to end (rules and state on MariaDB, Prometheus
	// collector against a stub, InfluxDB) on a machine of this kind with two cores.
	const peer = 5247 // points a second
	const points = 1000
	scopes, hours := size.scopes/20, size.ratedHours/size.runs*size.runs
	if size.scopes < 100 {
		scopes = 2
	}
	err = benchDatabase(ctx, p, dir, func(e *engine.Engine, s *store.Store) error {
		if err := bench.HourlyUsage(ctx, e.Conn(), scopes, points, hours, 40); err != nil {
			return err
		}
		if err := readyToRate(ctx, s, bench.UsageBegin); err != nil {
			return err
		}
		var times []time.Duration
		for run := range size.runs {
			until := bench.UsageBegin.Add(time.Duration((run+1)*hours/size.runs) * time.Hour)
			if err := completeUntil(ctx, s, until); err != nil {
				return err
			}
			job := &rate.Job{Store: s, Log: p.log, Options: benchOptions(until)}
			started := time.Now()
			result, err := p.runRate(ctx, job, jobOptions{})
			if err != nil {
				return err
			}
			times = append(times, time.Since(started))
			if want := uint64(scopes * points * hours / size.runs); result.Lines != want {
				return fmt.Errorf("%d lines were rated, want %d", result.Lines, want)
			}
		}
		median, spread := bench.Median(times)
		speed := float64(scopes*points*hours/size.runs) / median.Seconds()
		figures = []bench.Figure{
			{Name: "rate_lines_per_second", Value: speed, Unit: "lines/s, usage to commits", Runs: len(times), Spread: spread},
			{Name: "rate_vs_peer", Value: speed / peer, Unit: fmt.Sprintf("times the peer's %d points/s (aim: 300, then 1000)", peer), Runs: len(times), Spread: spread},
		}
		return nil
	})
	return figures, err
}
