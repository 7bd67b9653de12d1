package exporter

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch/plan"
)

//go:embed statement.html
var statementPage string

var statementTemplate = template.Must(template.New("statement").Parse(statementPage))

func statementPath(prefix string, st Statement) (string, map[string]string) {
	return prefix + "pages/" + scopeFolder(st.Scope) + "statement-" + pathName(st.Currency) + ".html", map[string]string{"scope": st.Scope}
}

// colors of the chart, told apart in print and by people who see few colors.
var colors = []string{"#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999999", "#f0e442"}

// bar is a rectangle of the chart in its own units.
type bar struct {
	X, Y, Width, Height float64
	Color, Title        string
}

type legend struct{ Color, Name string }

// HTML is the statement as a page that prints on one or two sheets, with the
// cost per day and metric as a chart. It needs no other file and no script.
func (s Statement) HTML() ([]byte, error) {
	bars, legends, ticks := s.chart()
	var out bytes.Buffer
	err := statementTemplate.Execute(&out, map[string]any{"S": s, "Month": s.Month.Format("January 2006"), "Bars": bars, "Legends": legends, "Ticks": ticks})
	return out.Bytes(), err
}

// Description is what a person reads on a position.
func (l StatementLine) Description() string {
	switch l.Kind {
	case "rounding":
		return "Rounding"
	case "total":
		return "Total"
	case "correction":
		return "Correction of an earlier month: " + chargeName(l.Metric)
	}
	return chargeName(l.Metric)
}

// chargeName is what a customer calls a metric: lines that come from other lines
// say what they are for.
func chargeName(metric string) string {
	switch metric {
	case plan.AdjustmentMetric:
		return "Volume price for what was used before in the month"
	case plan.DiscountMetric:
		return "Discount"
	case plan.MinimumMetric:
		return "Minimum charge: what is missing to it"
	case plan.CapMetric:
		return "Maximum charge: what is above it"
	}
	return metric
}

// derivedOrder puts positions that come from others behind them, in the order in
// which they are worked out; 0 is usage.
func derivedOrder(metric string) int { return 1 + slices.Index(plan.DerivedMetrics(), metric) }

// QuantityText is the quantity with at most six digits after the point; the
// data files have all of them.
func (l StatementLine) QuantityText() string {
	if l.Metric == "" {
		return ""
	}
	return l.Quantity.RoundBank(6).String() + " " + l.Unit
}

type tick struct {
	Y    float64
	Text string
}

const chartWidth, chartHeight = 620.0, 180.0

// chart lays out one column per day, metrics on top of each other. Sizes on a
// screen are no money, so here are the only floating-point numbers.
func (s Statement) chart() ([]bar, []legend, []tick) {
	days := s.Month.AddDate(0, 1, -1).Day()
	metrics := slices.Sorted(maps.Keys(s.Days))
	top := decimal.Zero
	for day := range days {
		sum := decimal.Zero
		for _, m := range metrics {
			if v := s.Days[m][day]; v.IsPositive() {
				sum = sum.Add(v)
			}
		}
		top = decimal.Max(top, sum)
	}
	var legends []legend
	for i, m := range metrics {
		legends = append(legends, legend{colors[i%len(colors)], m})
	}
	if !top.IsPositive() {
		return nil, legends, nil
	}
	step := chartWidth / float64(days)
	var bars []bar
	for day := range days {
		at := chartHeight
		for i, m := range metrics {
			v := s.Days[m][day]
			if !v.IsPositive() {
				continue
			}
			height := v.Div(top).InexactFloat64() * chartHeight
			at -= height
			bars = append(bars, bar{float64(day)*step + 1, at, step - 2, height, colors[i%len(colors)],
				fmt.Sprintf("%s, %s: %s %s", s.Month.AddDate(0, 0, day).Format("2 January"), m, v.RoundBank(4), s.Currency)})
		}
	}
	var ticks []tick
	for _, part := range []float64{0, 0.5, 1} {
		ticks = append(ticks, tick{chartHeight * (1 - part), top.Mul(decimal.NewFromFloat(part)).RoundBank(2).String()})
	}
	return bars, legends, ticks
}

// Class is the style of a position's row.
func (l StatementLine) Class() string { return strings.ToLower(l.Kind) }
