package web

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch/expr"
	"github.com/ratebatch/ratebatch/ratebatch/metric"
	"github.com/ratebatch/ratebatch/ratebatch/plan"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// planVersion is a version of the rate plan.
type planVersion struct {
	Version   uint32     `json:"version"`
	Digest    string     `json:"digest"`
	Currency  string     `json:"currency"`
	Author    string     `json:"author"`
	Note      string     `json:"note"`
	ValidFrom time.Time  `json:"valid_from"`
	ValidTo   *time.Time `json:"valid_to"`
	AppliedAt time.Time  `json:"applied_at"`
	InForce   bool       `json:"in_force"`
}

func (c *call) version(v *store.Version, now *store.Version) planVersion {
	out := planVersion{Version: v.Version, Digest: v.Digest, Currency: v.Currency, Author: v.Author, Note: v.Note, ValidFrom: v.ValidFrom.UTC(), AppliedAt: v.AppliedAt.UTC(), InForce: now != nil && now.Version == v.Version}
	if to := v.ValidTo.UTC(); to.Before(store.OpenEnd) {
		out.ValidTo = &to
	}
	if c.id.Project != "" { // notes are written for operators
		out.Author, out.Note = "", ""
	}
	return out
}

func (s *Server) plans(ctx context.Context, c *call) (any, error) {
	versions, err := c.store.Versions(ctx, store.PlanVersions)
	if err != nil {
		return nil, err
	}
	now := inForce(versions, c.now)
	out := []planVersion{}
	for i := range slices.Backward(versions) {
		out = append(out, c.version(&versions[i], now))
	}
	return map[string]any{"plans": out}, nil
}

// rule is a mapping or threshold.
type rule struct {
	ID          string          `json:"id"`
	Service     string          `json:"service"`
	Field       string          `json:"field"`
	Kind        string          `json:"kind"`
	Match       string          `json:"match"`
	Type        string          `json:"type"`
	Cost        decimal.Decimal `json:"cost"`
	Group       string          `json:"group"`
	Project     string          `json:"project"`
	Start       *time.Time      `json:"start"`
	End         *time.Time      `json:"end"`
	Description string          `json:"description,omitempty"`
}

type planDetail struct {
	Plan        planVersion `json:"plan"`
	Description string      `json:"description"`
	Rules       []rule      `json:"rules"`
	Others      []string    `json:"others"`
	Body        *string     `json:"body"`
}

// find is the version that text names: a number or current.
func (c *call) find(versions []store.Version, text string) (*store.Version, error) {
	if text == "current" {
		if v := inForce(versions, c.now); v != nil {
			return v, nil
		}
		return nil, notFound("no rate plan is in force now")
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return nil, badRequest("version "+shorten(text), "use a number or current")
	}
	for i := range versions {
		if uint64(versions[i].Version) == n {
			return &versions[i], nil
		}
	}
	return nil, notFound("there is no such version of the plan")
}

// parse reads a version's plan, without the rules of other projects for a
// project's token.
func (c *call) parse(ctx context.Context, v *store.Version) (*plan.Plan, error) {
	p, err := plan.Parse(fmt.Sprintf("rate plan version %d", v.Version), []byte(v.Body))
	if err != nil || c.id.Project == "" {
		return p, err
	}
	keys, err := ProjectKeys(ctx, c.store)
	if err != nil {
		return nil, err
	}
	return planOf(p, c.id.Project, keys), nil
}

// planOf is a plan without what is for other scopes only. The keys are those of
// ProjectKeys.
func planOf(p *plan.Plan, scope string, keys []string) *plan.Plan {
	other := func(of string) bool { return of != "" && of != scope }
	mappings := func(list []plan.Mapping) []plan.Mapping {
		return slices.DeleteFunc(slices.Clone(list), func(m plan.Mapping) bool { return other(m.Scope) })
	}
	thresholds := func(list []plan.Threshold) []plan.Threshold {
		return slices.DeleteFunc(slices.Clone(list), func(t plan.Threshold) bool { return other(t.Scope) })
	}
	out := *p
	out.Description = ""
	out.Modules = slices.DeleteFunc(slices.Clone(p.Modules), func(m plan.Module) bool { return other(m.Scope) })
	out.Expressions = slices.DeleteFunc(slices.Clone(p.Expressions), func(e plan.Expression) bool {
		return other(e.Scope) || NamesProjects(e.When, keys) || NamesProjects(e.Price, keys)
	})
	out.Discounts = slices.DeleteFunc(slices.Clone(p.Discounts), func(d plan.Discount) bool { return other(d.Scope) })
	out.Charges = slices.DeleteFunc(slices.Clone(p.Charges), func(x plan.Charge) bool { return other(x.Scope) })
	if NamesProjects(p.Skip, keys) {
		out.Skip = ""
	}
	out.Services = slices.Clone(p.Services)
	for i := range out.Services {
		x := &out.Services[i]
		x.Mappings, x.Thresholds = mappings(x.Mappings), thresholds(x.Thresholds)
		x.Tiers = slices.DeleteFunc(slices.Clone(x.Tiers), func(t plan.Tiers) bool { return other(t.Scope) })
		if NamesProjects(x.Skip, keys) {
			x.Skip = ""
		}
		x.Fields = slices.Clone(x.Fields)
		for j := range x.Fields {
			f := &x.Fields[j]
			f.Mappings, f.Thresholds = mappings(f.Mappings), thresholds(f.Thresholds)
			f.Mappings = slices.DeleteFunc(f.Mappings, func(m plan.Mapping) bool { return OfOthers(plan.Rule{Field: f.Name, Value: m.Value}, scope, keys) })
		}
	}
	// A group that only rules of others are in is named after them, perhaps.
	groups := map[string]bool{}
	for r := range out.Rules() {
		groups[r.Group] = true
	}
	out.Groups = slices.DeleteFunc(slices.Clone(p.Groups), func(g string) bool { return !groups[g] })
	return &out
}

// ProjectKeys are the names of the attributes whose values are projects' ids:
// those that plans call so, and by every metric set that was ever applied the keys
// of scopes and the attributes read from the same columns, sorted.
func ProjectKeys(ctx context.Context, s *store.Store) ([]string, error) {
	applied, err := everyMetric(ctx, s)
	if err != nil {
		return nil, err
	}
	keys := []string{"project_id", "scope"}
	for _, m := range applied {
		keys = append(keys, m.ScopeKey)
		for _, a := range m.Attributes() {
			if a.Column == m.ScopeKey {
				keys = append(keys, a.Name)
			}
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys), nil
}

// everyMetric are the metrics of every set that was ever applied: lines of before
// are shown too.
func everyMetric(ctx context.Context, s *store.Store) ([]*metric.Metric, error) {
	versions, err := s.Versions(ctx, store.MetricVersions)
	if err != nil {
		return nil, err
	}
	var out []*metric.Metric
	for i := range versions {
		set, err := metric.Parse(fmt.Sprintf("metric set %d", versions[i].Version), []byte(versions[i].Body))
		if err != nil {
			return nil, err
		}
		out = append(out, set.Metrics...)
	}
	return out, nil
}

// DescribesOther says whether attributes of a usage row name another project than
// this one: what a rule makes of them is that project's price. The keys are those
// of ProjectKeys.
func DescribesOther(attributes map[string]string, project string, keys []string) bool {
	return slices.ContainsFunc(keys, func(key string) bool {
		of, ok := attributes[key]
		return ok && of != project
	})
}

// OfOthers says whether a rule is other projects' only, or names one: values of
// the fields in keys, those of ProjectKeys, are projects' ids.
func OfOthers(r plan.Rule, project string, keys []string) bool {
	return r.Scope != "" && r.Scope != project || slices.Contains(keys, r.Field) && r.Value != project
}

// NamesProjects says whether a condition or a price may hold other projects' ids:
// it looks at the scope or at an attribute of ProjectKeys, mentions projects, or
// cannot be read.
func NamesProjects(text string, keys []string) bool {
	if text == "" {
		return false
	}
	x, err := expr.Condition(text)
	if err != nil {
		x, err = expr.Number(text)
	}
	return err != nil || strings.Contains(text, "scope") || strings.Contains(text, "project") ||
		slices.ContainsFunc(x.Attributes(), func(name string) bool { return slices.Contains(keys, name) })
}

func (s *Server) plan(ctx context.Context, c *call) (any, error) {
	versions, err := c.store.Versions(ctx, store.PlanVersions)
	if err != nil {
		return nil, err
	}
	v, err := c.find(versions, c.PathValue("version"))
	if err != nil {
		return nil, err
	}
	p, err := c.parse(ctx, v)
	if err != nil {
		return nil, err
	}
	out := planDetail{Plan: c.version(v, inForce(versions, c.now)), Description: p.Description, Rules: []rule{}, Others: others(p)}
	if c.id.Project == "" {
		out.Body = &v.Body
	}
	for r := range p.Rules() {
		x := rule{ID: r.ID, Service: r.Service, Field: r.Field, Kind: string(r.Kind), Match: r.Value, Type: string(r.Type), Cost: r.Cost, Group: r.Group, Project: r.Scope, Start: moment(r.Start), End: moment(r.End), Description: r.Description}
		if r.Kind == plan.ThresholdKind {
			x.Match = r.Level.String()
		}
		if x.Type == "" {
			x.Type = string(plan.Flat)
		}
		out.Rules = append(out.Rules, x)
	}
	return out, nil
}

func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// others says what a plan holds beside mappings and thresholds, a sentence
// each.
func others(p *plan.Plan) []string {
	rest := &plan.Plan{Skip: p.Skip, Modules: p.Modules, Expressions: p.Expressions, Discounts: p.Discounts, Charges: p.Charges}
	for _, x := range p.Services {
		if len(x.Tiers) > 0 || x.Skip != "" {
			rest.Services = append(rest.Services, plan.Service{Name: x.Name, Skip: x.Skip, Tiers: x.Tiers})
		}
	}
	out := []string{}
	for _, x := range changes(&plan.Plan{}, rest) {
		out = append(out, x.Text)
	}
	return out
}

type change struct {
	Change string `json:"change"`
	Text   string `json:"text"`
}

func changes(a, b *plan.Plan) []change {
	out := []change{}
	for _, x := range plan.Changes(a, b) {
		out = append(out, change{map[string]string{"+": "added", "-": "removed", "~": "changed"}[x.Mark], x.Text})
	}
	return out
}

type planDiff struct {
	From    planVersion `json:"from"`
	To      planVersion `json:"to"`
	Changes []change    `json:"changes"`
}

func (s *Server) planDiff(ctx context.Context, c *call) (any, error) {
	versions, err := c.store.Versions(ctx, store.PlanVersions)
	if err != nil {
		return nil, err
	}
	var of [2]*plan.Plan
	var v [2]planVersion
	for i, name := range []string{"version", "to"} {
		found, err := c.find(versions, c.PathValue(name))
		if err != nil {
			return nil, err
		}
		if of[i], err = c.parse(ctx, found); err != nil {
			return nil, err
		}
		v[i] = c.version(found, inForce(versions, c.now))
	}
	return planDiff{v[0], v[1], changes(of[0], of[1])}, nil
}

// metricText is a metric for the quote form.
type metricText struct {
	Name        string   `json:"name"`
	Unit        string   `json:"unit"`
	Description string   `json:"description"`
	Groupby     []string `json:"groupby"`
	Metadata    []string `json:"metadata"`
}

func (s *Server) metrics(ctx context.Context, c *call) (any, error) {
	set, err := MetricsInForce(ctx, c.store, c.now)
	if err != nil {
		return nil, err
	}
	out := []metricText{}
	for _, m := range set.Metrics {
		out = append(out, metricText{m.Name, m.Unit, m.Description, AttributeNames(m.Groupby), AttributeNames(m.Metadata)})
	}
	return map[string]any{"metrics": out}, nil
}

// AttributeNames are the names of a metric's attributes; of none an empty list.
func AttributeNames(list []metric.Attribute) []string {
	out := []string{}
	for _, a := range list {
		out = append(out, a.Name)
	}
	return out
}

// MetricsInForce is the metric set in force at a moment, the built-in one if
// none was ever applied.
func MetricsInForce(ctx context.Context, s *store.Store, at time.Time) (*metric.Set, error) {
	versions, err := s.Versions(ctx, store.MetricVersions)
	if err != nil {
		return nil, err
	}
	if len(versions) == 0 {
		return metric.Parse("the built-in metrics", metric.Default())
	}
	v := inForce(versions, at)
	if v == nil {
		return nil, notFound("no metric set is in force now")
	}
	return metric.Parse(fmt.Sprintf("metric set %d", v.Version), []byte(v.Body))
}

// PlanInForce is the plan in force at a moment; nil if there is none.
func PlanInForce(ctx context.Context, s *store.Store, at time.Time) (*plan.Plan, *store.Version, error) {
	versions, err := s.Versions(ctx, store.PlanVersions)
	if err != nil {
		return nil, nil, err
	}
	v := inForce(versions, at)
	if v == nil {
		return nil, nil, nil
	}
	p, err := plan.Parse(fmt.Sprintf("rate plan version %d", v.Version), []byte(v.Body))
	return p, v, err
}

// body reads a JSON body with nothing unknown in it.
func (c *call) body(into any) error {
	if kind, _, err := mime.ParseMediaType(c.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return badRequest("the body is not application/json", "send Content-Type: application/json")
	}
	decoder := json.NewDecoder(io.LimitReader(c.Body, maxBody+1))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(into)
	if decoder.InputOffset() > maxBody || c.ContentLength > maxBody {
		return &apiError{status: http.StatusRequestEntityTooLarge, code: "too_large", message: fmt.Sprintf("the body is longer than %d bytes", maxBody)}
	}
	if err != nil {
		return badRequest("the body cannot be read", "it must be the JSON object that openapi.yaml describes")
	}
	if decoder.Decode(new(any)) != io.EOF {
		return badRequest("more follows after the object", "send one object")
	}
	return nil
}
