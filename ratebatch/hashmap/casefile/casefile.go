// Package casefile reads price tests and runs them: cases of rules and points
// with the price that each point must have, one JSON object a line. The
// recorded answers of CloudKitty's own code have this form, and so do the
// price tests that users write for their plans.
//
// A case has a name, tags, period_begin (UTC), rules (services, fields,
// groups, mappings, thresholds, in load order) and points. A point has metric,
// scope_id, qty, unit, groupby, metadata and price, or error where the line
// must be rejected; price_in is the price before rating. Of a metric with tiers
// used_before is what the point's account has used in the month before the
// period; the point is the only usage of its period and its price the sum of its
// lines. Numbers are strings, so that no JSON reader makes binary floats of them.
//
// The package performs no I/O: it reads what it is given.
package casefile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch/hashmap"
	"github.com/ratebatch/ratebatch/ratebatch/plan"
)

// MaxLine bounds one case.
const MaxLine = 16 << 20

// Case is one set of rules and the points priced by it.
type Case struct {
	Name   string
	Tags   []string
	Begin  time.Time
	Rules  hashmap.Rules
	Plan   *plan.Plan // set by the caller for a case without rules of its own
	Line   int        // in its file
	Points []Point

	bare       bool // it has no rules
	thresholds []plan.Rule
}

// Bare says whether the case has no rules of its own, so that a plan has to be
// given.
func (c *Case) Bare() bool { return c.bare }

// Evaluator makes the evaluator of the case's rules or plan.
func (c *Case) Evaluator() (*hashmap.Evaluator, error) {
	if c.Plan == nil {
		return hashmap.CompileRules(c.Rules), nil
	}
	units := map[string]string{}
	for i := range c.Points {
		units[c.Points[i].Metric] = c.Points[i].Unit
	}
	return hashmap.Compile(c.Plan, hashmap.Options{Units: units})
}

// checkTiers refuses what would be left out silently: tiers know no price
// before rating, and other rules nothing of the month.
func (c *Case) checkTiers(e *hashmap.Evaluator) error {
	for i := range c.Points {
		p := &c.Points[i]
		tiers := e.HasTiers(p.Metric)
		if !tiers && !p.Before.IsZero() {
			return fmt.Errorf("point %d: used_before is %s, but %s has no tiers", i+1, p.Before, p.Metric)
		}
		if tiers && !p.PriceIn.IsZero() {
			return fmt.Errorf("point %d: price_in is %s, but tiers begin with no price", i+1, p.PriceIn)
		}
	}
	return nil
}

// fieldThresholds are the rules that compare values as numbers.
func (c *Case) fieldThresholds() []plan.Rule {
	if c.thresholds == nil {
		rules := c.Rules.Rules
		if c.Plan != nil {
			rules = hashmap.FromPlan(c.Plan).Rules
		}
		c.thresholds = slices.DeleteFunc(slices.Clone(rules), func(r plan.Rule) bool { return r.Kind != plan.ThresholdKind || r.Field == "" })
	}
	return c.thresholds
}

// Point is a data point with the answer that is expected.
type Point struct {
	hashmap.Point
	Groupby, Metadata map[string]string
	Want              decimal.Decimal
	Error             string // not empty: CloudKitty stops here, we reject the point
	isBool            func(attribute string) bool
	OrderSensitive    bool // CloudKitty's answer depends on the order of its rows
}

type jsonCase struct {
	Name        string      `json:"name"`
	Tags        []string    `json:"tags"`
	PeriodBegin string      `json:"period_begin"`
	Rules       *jsonRules  `json:"rules"`
	Points      []jsonPoint `json:"points"`
	Note        string      `json:"note"`
}

type jsonRules struct {
	Services   []string        `json:"services"`
	Fields     []jsonField     `json:"fields"`
	Groups     []string        `json:"groups"`
	Mappings   []jsonMapping   `json:"mappings"`
	Thresholds []jsonThreshold `json:"thresholds"`
}

type jsonField struct {
	Service string `json:"service"`
	Name    string `json:"name"`
}

type jsonMapping struct {
	Service string  `json:"service"`
	Field   *string `json:"field"`
	Value   *string `json:"value"`
	Cost    numText `json:"cost"`
	Type    string  `json:"type"`
	Group   *string `json:"group"`
	Tenant  *string `json:"tenant"`
	Start   *string `json:"start"`
	End     *string `json:"end"`
	Deleted bool    `json:"deleted"`
}

type jsonThreshold struct {
	Service string  `json:"service"`
	Field   *string `json:"field"`
	Level   numText `json:"level"`
	Cost    numText `json:"cost"`
	Type    string  `json:"type"`
	Group   *string `json:"group"`
	Tenant  *string `json:"tenant"`
	Start   *string `json:"start"`
	End     *string `json:"end"`
}

type jsonPoint struct {
	Metric         string                     `json:"metric"`
	ScopeID        string                     `json:"scope_id"`
	Qty            numText                    `json:"qty"`
	Unit           string                     `json:"unit"`
	Groupby        map[string]json.RawMessage `json:"groupby"`
	Metadata       map[string]json.RawMessage `json:"metadata"`
	Price          *numText                   `json:"price"`
	PricePy        *numText                   `json:"price_py"`
	PriceIn        *numText                   `json:"price_in"`
	UsedBefore     *numText                   `json:"used_before"`
	Error          *string                    `json:"error"`
	OrderSensitive bool                       `json:"order_sensitive"`
	Note           string                     `json:"note"`
}

// numText is the text of a number, written as a string or as a JSON number.
type numText string

// UnmarshalJSON keeps the digits as they are.
func (n *numText) UnmarshalJSON(raw []byte) error {
	if len(raw) > 0 && raw[0] == '"' {
		return json.Unmarshal(raw, (*string)(n))
	}
	if string(raw) == "null" || bytes.ContainsAny(raw, "{[tf") {
		return fmt.Errorf("expected a number, found %s", raw)
	}
	*n = numText(raw)
	return nil
}

// Read yields the cases of a file. Each mistake is yielded with the file's
// name and the line, and reading goes on with the next one.
func Read(name string, r io.Reader) iter.Seq2[*Case, error] {
	return func(yield func(*Case, error) bool) {
		lines := newLines(r)
		for lines.next() {
			if len(bytes.TrimSpace(lines.text)) == 0 {
				continue
			}
			c, err := parse(lines.text)
			if err != nil {
				if !yield(nil, fmt.Errorf("%s:%d: %w", name, lines.number, err)) {
					return
				}
				continue
			}
			c.Line = lines.number
			if !yield(c, nil) {
				return
			}
		}
		if lines.err != nil {
			yield(nil, fmt.Errorf("%s:%d: %w", name, lines.number+1, lines.err))
		}
	}
}

func parse(text []byte) (*Case, error) {
	var in jsonCase
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return nil, err
	}
	if d.More() {
		return nil, fmt.Errorf("more than one JSON value in a line")
	}
	c := &Case{Name: in.Name, Tags: in.Tags}
	begin, err := moment("period_begin", &in.PeriodBegin)
	if err != nil {
		return nil, err
	}
	c.Begin = begin
	if in.Rules == nil {
		c.bare = true
		in.Rules = &jsonRules{}
	}
	if c.Rules, err = in.Rules.read(); err != nil {
		return nil, fmt.Errorf("case %s: %w", in.Name, err)
	}
	for i := range in.Points {
		p, err := in.Points[i].read(begin)
		if err != nil {
			return nil, fmt.Errorf("case %s, point %d: %w", in.Name, i+1, err)
		}
		p.isBool = in.Points[i].isBool
		c.Points = append(c.Points, p)
	}
	return c, nil
}

func (in *jsonRules) read() (hashmap.Rules, error) {
	out := hashmap.Rules{Services: in.Services}
	for _, f := range in.Fields {
		out.Fields = append(out.Fields, hashmap.Field{Service: f.Service, Name: f.Name})
	}
	known := func(service string, field *string) error {
		if !slices.Contains(in.Services, service) {
			return fmt.Errorf("service %q is not listed", service)
		}
		if field != nil && !slices.Contains(in.Fields, jsonField{service, *field}) {
			return fmt.Errorf("field %q of service %q is not listed", *field, service)
		}
		return nil
	}
	for i := range in.Mappings {
		m := &in.Mappings[i]
		r := plan.Rule{
			Kind: plan.MappingKind, ID: "m" + strconv.Itoa(i+1), Service: m.Service,
			Field: text(m.Field), Value: text(m.Value), Group: text(m.Group), Scope: text(m.Tenant),
		}
		err := rule(&r, m.Cost, m.Type, m.Start, m.End)
		if err == nil {
			err = known(m.Service, m.Field)
		}
		if err == nil && (m.Field == nil) != (text(m.Value) == "") {
			err = fmt.Errorf("a mapping of a field has a value, one of a service has none")
		}
		if err != nil {
			return out, fmt.Errorf("mapping %d: %w", i+1, err)
		}
		if !m.Deleted {
			out.Rules = append(out.Rules, r)
		}
	}
	for i := range in.Thresholds {
		t := &in.Thresholds[i]
		r := plan.Rule{
			Kind: plan.ThresholdKind, ID: "t" + strconv.Itoa(i+1), Service: t.Service,
			Field: text(t.Field), Group: text(t.Group), Scope: text(t.Tenant),
		}
		err := rule(&r, t.Cost, t.Type, t.Start, t.End)
		if err == nil {
			r.Level, err = plan.ParseLevel(string(t.Level))
		}
		if err == nil {
			err = known(t.Service, t.Field)
		}
		if err != nil {
			return out, fmt.Errorf("threshold %d: %w", i+1, err)
		}
		out.Rules = append(out.Rules, r)
	}
	return out, nil
}

func rule(r *plan.Rule, cost numText, kind string, start, end *string) (err error) {
	if r.Cost, err = plan.ParseCost(string(cost)); err != nil {
		return err
	}
	switch r.Type = plan.Type(kind); r.Type {
	case plan.Flat, plan.Rate:
	default:
		return fmt.Errorf("type %q: expected flat or rate", kind)
	}
	if r.Start, err = moment("start", start); err != nil {
		return err
	}
	r.End, err = moment("end", end)
	return err
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func moment(key string, s *string) (time.Time, error) {
	if s == nil {
		return time.Time{}, nil
	}
	for _, layout := range []string{"2006-01-02T15:04:05", time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, *s); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("%s %q is not a time", key, *s)
}

func (in *jsonPoint) read(begin time.Time) (Point, error) {
	p := Point{OrderSensitive: in.OrderSensitive, Error: text(in.Error)}
	p.Metric, p.Scope, p.Unit, p.Begin = in.Metric, in.ScopeID, in.Unit, begin
	var err error
	if p.Qty, err = number("qty", &in.Qty); err != nil {
		return p, err
	}
	if p.PriceIn, err = number("price_in", in.PriceIn); err != nil {
		return p, err
	}
	if p.Before, err = number("used_before", in.UsedBefore); err != nil {
		return p, err
	}
	if p.Before.IsNegative() {
		return p, fmt.Errorf("used_before is %s: what a month has used is 0 or more", p.Before)
	}
	if p.Want, err = number("price", in.Price); err != nil {
		return p, err
	}
	if (in.Price == nil) == (in.Error == nil) {
		return p, fmt.Errorf("a point has a price or an error")
	}
	if p.Groupby, err = values("groupby", in.Groupby); err != nil {
		return p, err
	}
	if p.Metadata, err = values("metadata", in.Metadata); err != nil {
		return p, err
	}
	p.Attributes = make(map[string]string, len(p.Groupby)+len(p.Metadata))
	for k, v := range p.Metadata {
		p.Attributes[k] = v
	}
	for k, v := range p.Groupby {
		p.Attributes[k] = v
	}
	return p, nil
}

// isBool says whether the attribute that rules see is a JSON true or false.
func (in *jsonPoint) isBool(key string) bool {
	raw, ok := in.Groupby[key]
	if !ok {
		raw = in.Metadata[key]
	}
	t := string(bytes.TrimSpace(raw))
	return t == "true" || t == "false"
}

// exotic says whether some threshold in force compares a value that CloudKitty
// takes for a number and we do not, so that we reject the point.
func (c *Case) exotic(p *Point) bool {
	rules := c.fieldThresholds()
	for i := range rules {
		r := &rules[i]
		if r.Service != p.Metric ||
			r.Scope != "" && r.Scope != p.Scope || !r.ValidAt(p.Begin) {
			continue
		}
		if v, ok := p.Attributes[r.Field]; ok && (p.isBool(r.Field) || pythonOnlyNumber(v)) {
			return true
		}
	}
	return false
}

// number reads quantities and prices, which recorded cases have in any length.
func number(key string, s *numText) (decimal.Decimal, error) {
	if s == nil {
		return decimal.Decimal{}, nil
	}
	const digits = 120
	d, err := plan.ParseNumber(strings.TrimSpace(string(*s)), digits, digits)
	if err != nil {
		return d, fmt.Errorf("%s: %w", key, err)
	}
	return d, nil
}

func values(key string, in map[string]json.RawMessage) (map[string]string, error) {
	out := make(map[string]string, len(in))
	for k, raw := range in {
		v, err := pythonText(raw)
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %w", key, k, err)
		}
		out[k] = v
	}
	return out, nil
}

// pythonText turns a JSON value into text as CloudKitty's str() does: True,
// None, and numbers as Python prints them.
func pythonText(raw json.RawMessage) (string, error) {
	switch t := string(bytes.TrimSpace(raw)); {
	case t == "true":
		return "True", nil
	case t == "false":
		return "False", nil
	case t == "null":
		return "None", nil
	case strings.HasPrefix(t, `"`):
		var s string
		err := json.Unmarshal(raw, &s)
		return s, err
	case strings.HasPrefix(t, "{"), strings.HasPrefix(t, "["):
		return "", fmt.Errorf("expected a text, number, boolean or null")
	case !strings.ContainsAny(t, ".eE"):
		if i, ok := new(big.Int).SetString(t, 10); ok {
			return i.String(), nil // -0 is 0
		}
		return t, nil
	default:
		return pythonFloat(t)
	}
}
