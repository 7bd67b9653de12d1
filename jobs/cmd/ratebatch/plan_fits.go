package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/metric"
	"github.com/ratebatch/ratebatch/ratebatch/plan"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// What a rate plan and a metric set have to agree about, and what a plan may not
// change within a billing month.

// planFits refuses a plan for metrics that nobody collects, or by attributes that
// they do not have, and one by which a month would be billed wrongly.
func planFits(ctx context.Context, s *store.Store, d draft) error {
	parsed, err := plan.Parse(d.file, []byte(d.Body))
	if err != nil {
		return &ratebatch.ConfigError{Err: err}
	}
	versions, err := s.Versions(ctx, store.MetricVersions)
	if err != nil {
		return err
	}
	// Without a set in force at its begin the plan could price nothing.
	if _, err := metricsInForce(ctx, s, d.ValidFrom); err != nil {
		return err
	}
	spans := d.spans(versions)
	if len(versions) == 0 {
		spans = []store.Span{{Begin: d.ValidFrom, End: d.ValidTo, Version: &store.Version{Body: string(metric.Default())}}}
	}
	var errs []error
	for _, span := range spans {
		if span.Version == nil {
			continue
		}
		set, err := metric.Parse(metricsName(*span.Version), []byte(span.Version.Body))
		if err != nil {
			return err
		}
		if err := parsed.Collected(known(set)).Err(); err != nil {
			errs = append(errs, fmt.Errorf("by %s, in force from %s:\n%w", metricsName(*span.Version), span.Begin.Format(time.RFC3339), err))
		}
	}
	if len(errs) > 0 {
		return &ratebatch.ConfigError{Err: errors.Join(errs...), Hint: "metrics are those of 'ratebatch metrics show', or the built-in ones; apply a set with what is missing first, or the plan for another time (--from, --to)"}
	}
	return monthsFit(d, parsed)
}

func metricsName(v store.Version) string {
	if v.Version == 0 {
		return "the built-in metrics"
	}
	return fmt.Sprintf("metric set %d", v.Version)
}

// known is what a metric set says to whoever checks a plan.
func known(set *metric.Set) plan.Metrics {
	out := plan.Metrics{}
	for _, m := range set.Metrics {
		out[m.Name] = m.Facts()
	}
	return out
}

// metricsFit refuses a metric set that lacks what a plan in force prices: usage of
// it, and its lines, would stop without a word.
func metricsFit(ctx context.Context, s *store.Store, d draft) error {
	set, err := metric.Parse(d.file, []byte(d.Body))
	if err != nil {
		return err
	}
	versions, err := s.Versions(ctx, store.PlanVersions)
	if err != nil {
		return err
	}
	var errs []error
	for _, span := range d.spans(versions) {
		if span.Version == nil {
			continue
		}
		name := "rate plan " + planName(*span.Version, "")
		parsed, err := plan.Parse(name, []byte(span.Version.Body))
		if err != nil {
			return err
		}
		if err := parsed.Collected(known(set)).Err(); err != nil {
			errs = append(errs, fmt.Errorf("by %s, in force from %s:\n%w", name, span.Begin.Format(time.RFC3339), err))
		}
	}
	if len(errs) > 0 {
		return &ratebatch.ConfigError{Err: errors.Join(errs...), Hint: "keep in the set what a plan in force prices; to give it up or rename it, apply a set with both names, then a plan without the old one, then the set without it"}
	}
	return nil
}

// monthsFit refuses a plan that changes within a month what has one price for all
// of it; applied is the draft, parsed.
func monthsFit(d draft, applied *plan.Plan) error {
	from, to := d.ValidFrom, d.ValidTo
	if from.After(time.Unix(0, 0)) { // else it is the first, and in force since ever
		from = d.calendar.MonthAt(from).From
	}
	if to.Before(store.OpenEnd) {
		to = d.calendar.MonthAt(to).To
	}
	all := append(append([]store.Version{}, d.stored...), d.Version)
	parsed := map[*store.Version]*plan.Plan{&all[len(all)-1]: applied}
	timeline := func(versions []store.Version) (l plan.Timeline, err error) {
		l = plan.Timeline{Calendar: d.calendar, Period: d.period}
		for _, span := range store.PeriodSpans(versions, from, to, d.period) {
			v := span.Version
			// Parsing a plan of 100,000 rules takes a second; the words cost nothing.
			if v != nil && parsed[v] == nil && (strings.Contains(v.Body, "tiers") || strings.Contains(v.Body, "charges")) {
				if parsed[v], err = plan.Parse(planName(*v, d.file), []byte(v.Body)); err != nil {
					return l, err
				}
			}
			l.Stretches = append(l.Stretches, plan.Stretch{From: span.Begin, To: span.End, Plan: parsed[v], New: v == &all[len(all)-1]})
		}
		return l, nil
	}
	stored, err := timeline(all[:len(all)-1])
	if err != nil {
		return err
	}
	l, err := timeline(all)
	if err != nil {
		return err
	}
	if list := l.VolumeChanges(&stored); len(list) > 0 {
		return &ratebatch.ConfigError{Err: errors.New(strings.Join(list, "\n")),
			Hint: "let them change where a month begins (--from, --to, start, end); what was used before in the month was charged by the old ones, and an adjustment is by the new ones"}
	}
	if list := l.ChargeChanges(); len(list) > 0 && !d.force {
		return &ratebatch.ConfigError{Err: fmt.Errorf("billing_timezone is %s: %s", d.calendar.Zone(), strings.Join(list, "\n")),
			Hint: "dates are midnight UTC: write the instant; or, if that month is meant, apply it with --force --reason '…'"}
	}
	return nil
}

// meantMonths warns of moments that look like a month's begin and are not, in
// the billing time zone: one warning for each moment.
func meantMonths(calendar ratebatch.Calendar, moments []plan.Moment) []string {
	type seen struct {
		first plan.Moment
		more  int
	}
	var order []time.Time
	all := map[time.Time]*seen{}
	for _, m := range moments {
		if x := all[m.Time]; x != nil {
			x.more++
			continue
		}
		if _, near := plan.MeantMonth(calendar, m.Time); near {
			all[m.Time] = &seen{first: m}
			order = append(order, m.Time)
		}
	}
	var out []string
	for _, t := range order {
		begin, _ := plan.MeantMonth(calendar, t)
		more := ""
		if n := all[t].more; n > 0 {
			more = fmt.Sprintf(", and %d more", n)
		}
		out = append(out, fmt.Sprintf("%s is %s%s, but by billing_timezone %s the month begins at %s: write that if the month is meant, since dates are midnight UTC",
			all[t].first.What, t.Format(time.RFC3339), more, calendar.Zone(), begin.Format(time.RFC3339)))
	}
	return out
}

// planWarns warns of the dates of a plan's rules that can count while it is in
// force.
func planWarns(_ context.Context, _ *store.Store, d draft) ([]string, error) {
	moments, err := planMoments(d.file, d.Version)
	return meantMonths(d.calendar, moments), err
}

// planMoments are the starts and ends of a plan's rules within its validity.
func planMoments(name string, v store.Version) ([]plan.Moment, error) {
	parsed, err := plan.Parse(name, []byte(v.Body))
	if err != nil {
		return nil, err
	}
	var out []plan.Moment
	for m := range parsed.Moments() {
		if m.Time.Before(v.ValidFrom) || !m.Time.Before(v.ValidTo) {
			continue
		}
		if m.At.Line > 0 {
			m.What = fmt.Sprintf("%s:%d:%d: %s", name, m.At.Line, m.At.Column, m.What)
		}
		out = append(out, m)
	}
	return out, nil
}

// warns is meantMonths of the flags.
func (o *applyOptions) warns(d draft) []string {
	var moments []plan.Moment
	if o.from != "" {
		moments = append(moments, plan.Moment{What: "--from", Time: d.ValidFrom})
	}
	if o.to != "" {
		moments = append(moments, plan.Moment{What: "--to", Time: d.ValidTo})
	}
	return meantMonths(d.calendar, moments)
}
