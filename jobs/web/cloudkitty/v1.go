package cloudkitty

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/jobs/web"
	"github.com/ratebatch/ratebatch/ratebatch/hashmap"
	"github.com/ratebatch/ratebatch/ratebatch/metric"
	"github.com/ratebatch/ratebatch/ratebatch/plan"
)

func (s *Server) v1(ctx context.Context, q *request, path string) (answer, error) {
	if rest, isHashmap := strings.CutPrefix(path, "rating/module_config/hashmap/"); isHashmap {
		return s.hashmap(ctx, q, rest)
	}
	type way = func(context.Context, *request) (answer, error)
	ways := map[string]way{
		"GET rating/modules": s.modules, "POST rating/quote": s.quote, "GET rating/reload_modules": s.reload,
		"GET info/config": s.infoConfig, "GET info/metrics": s.infoMetrics, "GET info/services": s.infoMetrics,
		"GET report/summary": s.reportSummary, "GET report/total": s.reportTotal, "GET report/tenants": s.tenants,
		"GET storage/dataframes": s.storage, "GET rating/module_config/pyscripts/scripts": s.noScripts,
	}
	if f := ways[q.Method+" "+path]; f != nil {
		return f(ctx, q)
	}
	switch q.Method + " " + path {
	case "GET collector/mappings":
		return ok(map[string]any{"mappings": []any{}})
	case "GET collector/states":
		return ok(map[string]any{"name": q.get("name"), "enabled": q.get("name") == collector})
	}
	for _, prefix := range []string{"info/metrics/", "info/services/"} {
		if name, found := strings.CutPrefix(path, prefix); found && q.Method == http.MethodGet {
			return s.infoMetric(ctx, q, name)
		}
	}
	if id, found := strings.CutPrefix(path, "rating/modules/"); found {
		return s.module(ctx, q, id)
	}
	return answer{}, &failure{http.StatusMethodNotAllowed, "The method " + q.Method + " is not allowed for this resource."}
}

// modules are CloudKitty's three; hashmap is what the plan says of it.
func (s *Server) modules(ctx context.Context, q *request) (answer, error) {
	if q.v1 {
		if err := q.admin(); err != nil {
			return answer{}, err
		}
	}
	list, err := q.modules(ctx)
	if err != nil {
		return answer{}, err
	}
	return ok(map[string]any{"modules": list})
}

func (q *request) modules(ctx context.Context) ([]map[string]any, error) {
	p, _, err := web.PlanInForce(ctx, q.store, q.now)
	if err != nil {
		return nil, err
	}
	on, priority := p != nil && slices.Contains(p.ModulesFor(""), plan.Hashmap), 1
	if p != nil {
		for _, m := range p.Modules {
			if m.Module == plan.Hashmap && m.Scope == "" && m.Priority != 0 {
				priority = m.Priority
			}
		}
	}
	hot := "hot_config"
	if q.v1 {
		hot = "hot-config"
	}
	return []map[string]any{
		{"module_id": "hashmap", "description": "HashMap rating module.", "enabled": on, hot: true, "priority": priority},
		{"module_id": "noop", "description": "Dummy test module.", "enabled": false, hot: false, "priority": 1},
		{"module_id": "pyscripts", "description": "PyScripts rating module.", "enabled": false, hot: true, "priority": 1},
	}, nil
}

// module shows one module. An update that changes nothing succeeds: clients send
// the whole object.
func (s *Server) module(ctx context.Context, q *request, id string) (answer, error) {
	if err := q.admin(); err != nil {
		return answer{}, err
	}
	list, err := q.modules(ctx)
	if err != nil {
		return answer{}, err
	}
	i := slices.IndexFunc(list, func(m map[string]any) bool { return m["module_id"] == id })
	if i < 0 {
		if q.v1 {
			return answer{}, missing("Module not found.")
		}
		return answer{}, missing("Module '%.64s' not found", id)
	}
	switch q.Method {
	case http.MethodGet:
		return ok(list[i])
	case http.MethodPut:
		var b struct {
			ID       *string `json:"module_id"`
			Enabled  *bool   `json:"enabled"`
			Priority *int    `json:"priority"`
		}
		keys := []string{"enabled", "priority"}
		if q.v1 {
			keys = append(keys, "module_id", "description", "hot-config", "hot_config")
		}
		if err := q.body(&b, keys...); err != nil {
			return answer{}, err
		}
		if q.v1 && (b.ID == nil || *b.ID != id) {
			return answer{}, bad("module_id is missing")
		}
		if b.Enabled != nil && *b.Enabled != list[i]["enabled"] || b.Priority != nil && *b.Priority != list[i]["priority"] {
			return answer{}, &failure{http.StatusMethodNotAllowed, "modules are the rate plan's: change its part modules and use 'ratebatch plan apply'"}
		}
		return answer{status: http.StatusNoContent}, nil
	}
	return answer{}, &failure{http.StatusMethodNotAllowed, "use GET or PUT"}
}

// reload has nothing to do: the plan in force is read each time.
func (s *Server) reload(_ context.Context, q *request) (answer, error) {
	return answer{status: http.StatusNoContent}, q.admin()
}

func (s *Server) noScripts(_ context.Context, q *request) (answer, error) {
	if err := q.admin(); err != nil {
		return answer{}, err
	}
	return ok(map[string]any{"scripts": []any{}})
}

// quoted is a resource of a quote. desc is flat, as Horizon sends it, or
// {groupby, metadata}.
type quoted struct {
	Service *string                    `json:"service"`
	Desc    map[string]json.RawMessage `json:"desc"`
	Volume  json.RawMessage            `json:"volume"`
}

func (s *Server) quote(ctx context.Context, q *request) (answer, error) {
	data, err := io.ReadAll(q.Body)
	if err != nil {
		return answer{}, &failure{http.StatusRequestEntityTooLarge, "The body is too long."}
	}
	var b struct {
		Resources []quoted `json:"resources"`
	}
	if err := json.Unmarshal(data, &b); err != nil {
		return answer{}, bad("The body is no JSON object with resources.")
	}
	if len(b.Resources) > 1000 {
		return answer{}, bad("resources: at most 1000")
	}
	p, _, err := web.PlanInForce(ctx, q.store, q.now)
	if err != nil {
		return answer{}, err
	}
	if p == nil {
		return ok("0")
	}
	set, err := web.MetricsInForce(ctx, q.store, q.now)
	if err != nil {
		return answer{}, err
	}
	units := map[string]string{}
	for _, m := range set.Metrics {
		units[m.Name] = m.Unit
	}
	evaluator, err := hashmap.Compile(p, hashmap.Options{Units: units})
	if err != nil {
		return answer{}, err
	}
	var others []string // names of what a project's token may not describe
	if q.id.Project != "" {
		if others, err = web.ProjectKeys(ctx, q.store); err != nil {
			return answer{}, err
		}
	}
	total := decimal.Zero
	for i, x := range b.Resources {
		if x.Service == nil || x.Desc == nil {
			return answer{}, bad("resources[%d]: service or desc is missing", i)
		}
		qty := decimal.NewFromInt(1)
		if text := strings.Trim(string(x.Volume), `"`); text != "" && text != "null" {
			if qty, err = plan.ParseNumber(text, plan.LevelIntegerDigits, plan.LevelScale); err != nil {
				return answer{}, bad("resources[%d]: volume: %v", i, err)
			}
		}
		attributes := map[string]string{}
		describe(attributes, x.Desc)
		if web.DescribesOther(attributes, q.id.Project, others) {
			return answer{}, &failure{http.StatusForbidden, "Policy doesn't allow this to be performed for another project."}
		}
		if m, known := set.Get(*x.Service); known {
			attributes = m.WithImplied(attributes, q.id.Project, q.now)
		}
		r := evaluator.Price(&hashmap.Point{Metric: *x.Service, Scope: q.id.Project, Unit: units[*x.Service], Qty: qty, Attributes: attributes, Begin: q.now})
		total = total.Add(r.Price)
	}
	if total.IsZero() {
		return ok("0")
	}
	return ok(total.StringFixed(28))
}

// describe flattens desc: values of groupby win over metadata.
func describe(into map[string]string, desc map[string]json.RawMessage) {
	for _, name := range []string{"metadata", "groupby"} {
		var inner map[string]json.RawMessage
		if json.Unmarshal(desc[name], &inner) == nil {
			describe(into, inner)
		}
	}
	for name, raw := range desc {
		var text string
		switch {
		case name == "metadata" || name == "groupby":
		case json.Unmarshal(raw, &text) == nil:
			into[name] = text
		case string(raw) == "true": // as Python writes them, which is what rules were written against
			into[name] = "True"
		case string(raw) == "false":
			into[name] = "False"
		case string(raw) == "null":
			into[name] = "None"
		default:
			into[name] = string(raw)
		}
	}
}

func (s *Server) infoConfig(ctx context.Context, q *request) (answer, error) {
	set, err := web.MetricsInForce(ctx, q.store, q.now)
	if err != nil {
		return answer{}, err
	}
	_, period, err := web.Month(ctx, q.store, q.now)
	if err != nil {
		return answer{}, err
	}
	metrics := map[string]any{}
	for _, m := range set.Metrics {
		metrics[m.Key] = map[string]any{"unit": m.Unit, "alt_name": m.Name, "groupby": web.AttributeNames(m.Groupby), "metadata": web.AttributeNames(m.Metadata), "mutate": string(m.Mutate), "extra_args": map[string]any{"table": m.Table}}
	}
	return ok(map[string]any{"metrics": metrics, "period": int(period / time.Second)})
}

func infoOf(m *metric.Metric) map[string]any {
	return map[string]any{"metric_id": m.Name, "metadata": append(web.AttributeNames(m.Groupby), web.AttributeNames(m.Metadata)...), "unit": m.Unit}
}

func (s *Server) infoMetrics(ctx context.Context, q *request) (answer, error) {
	set, err := web.MetricsInForce(ctx, q.store, q.now)
	if err != nil {
		return answer{}, err
	}
	list := []any{}
	for _, m := range set.Metrics {
		list = append(list, infoOf(m))
	}
	return ok(map[string]any{"metrics": list})
}

func (s *Server) infoMetric(ctx context.Context, q *request, name string) (answer, error) {
	set, err := web.MetricsInForce(ctx, q.store, q.now)
	if err != nil {
		return answer{}, err
	}
	m, known := set.Get(name)
	if !known {
		return answer{}, missing("%.128s", name)
	}
	return ok(infoOf(m))
}

// tenant is whose costs a report shows. Everybody's are an operator's business,
// all_tenants or not: CloudKitty shows them to tokens without a project.
func (q *request) tenant() (string, error) {
	asked := q.get("tenant_id")
	all := map[string]bool{"true": true, "1": true}[strings.ToLower(q.get("all_tenants"))]
	if q.id.Project == "" {
		if all {
			return "", nil
		}
		return asked, nil
	}
	if all || asked != "" && asked != q.id.Project {
		return "", &failure{http.StatusForbidden, "Policy doesn't allow report:list_all_tenants to be performed."}
	}
	return q.id.Project, nil
}

func (s *Server) report(ctx context.Context, q *request, groups []string) (rows [][]string, prices []decimal.Decimal, from, to time.Time, err error) {
	tenant, err := q.tenant()
	if err != nil {
		return nil, nil, from, to, err
	}
	if from, to, err = q.window(ctx); err != nil {
		return nil, nil, from, to, err
	}
	var keys, values []string
	if tenant != "" {
		keys, values = append(keys, "project_id"), append(values, tenant)
	}
	if service := q.get("service"); service != "" {
		keys, values = append(keys, "type"), append(values, service)
	}
	list, err := s.sums(ctx, q, from, to, groups, keys, values)
	for _, x := range list {
		rows, prices = append(rows, x.Labels), append(prices, x.Price)
	}
	return rows, prices, from, to, err
}

// rate writes a price as v1 does: five decimals at most.
func rate(d decimal.Decimal) string { return d.RoundBank(5).String() }

func (s *Server) reportSummary(ctx context.Context, q *request) (answer, error) {
	if err := q.known([]string{"begin", "end", "tenant_id", "service", "groupby", "all_tenants"}); err != nil {
		return answer{}, err
	}
	var groups []string
	byTenant, byType := strings.Contains(q.get("groupby"), "tenant_id"), strings.Contains(q.get("groupby"), "res_type")
	if byTenant {
		groups = append(groups, "project_id")
	}
	if byType {
		groups = append(groups, "type")
	}
	rows, prices, from, to, err := s.report(ctx, q, groups)
	if err != nil {
		return answer{}, err
	}
	out := []any{}
	for i, labels := range rows {
		tenant, kind := "ALL", "ALL"
		if byTenant {
			tenant, labels = labels[0], labels[1:]
		}
		if byType {
			kind = labels[0]
		}
		out = append(out, map[string]any{"begin": naive(from), "end": naive(to), "tenant_id": tenant, "res_type": kind, "rate": rate(prices[i])})
	}
	return ok(map[string]any{"summary": out})
}

func (s *Server) reportTotal(ctx context.Context, q *request) (answer, error) {
	if err := q.known([]string{"begin", "end", "tenant_id", "service", "all_tenants"}); err != nil {
		return answer{}, err
	}
	_, prices, _, _, err := s.report(ctx, q, nil)
	if err != nil {
		return answer{}, err
	}
	total := decimal.Zero
	for _, p := range prices {
		total = total.Add(p)
	}
	return ok(rate(total))
}

func (s *Server) tenants(ctx context.Context, q *request) (answer, error) {
	if err := q.admin(); err != nil {
		return answer{}, err
	}
	if err := q.known([]string{"begin", "end"}); err != nil {
		return answer{}, err
	}
	all, err := q.allScopes(ctx)
	if err != nil {
		return answer{}, err
	}
	out := []string{}
	for _, x := range all {
		out = append(out, x.ID)
	}
	return ok(out)
}

func (s *Server) storage(ctx context.Context, q *request) (answer, error) {
	if err := q.known([]string{"begin", "end", "tenant_id", "resource_type"}); err != nil {
		return answer{}, err
	}
	project := q.get("tenant_id")
	if q.id.Project != "" {
		if project != "" && project != q.id.Project {
			return answer{}, &failure{http.StatusForbidden, "Policy doesn't allow storage:list_data_frames to be performed."}
		}
		project = q.id.Project
	}
	from, to, err := q.window(ctx)
	if err != nil {
		return answer{}, err
	}
	var keys, values []string
	if kind := q.get("resource_type"); kind != "" {
		keys, values = []string{"type"}, []string{kind}
	}
	list, total, err := s.points(ctx, q, from, to, project, keys, values, maxPoints, 0)
	if err != nil {
		return answer{}, err
	}
	if total > maxPoints {
		return answer{}, bad("%d data points: ask for a shorter time or one tenant_id, or use /v2/dataframes, which has pages", total)
	}
	// One element per frame and metric, of one project each.
	type key struct {
		begin, end      int64
		scope, resource string
	}
	at := map[key]int{}
	frames := []map[string]any{}
	for _, x := range list {
		k := key{x.Begin.Unix(), x.End.Unix(), x.Scope, x.Metric}
		i, found := at[k]
		if !found {
			i = len(frames)
			at[k] = i
			frames = append(frames, map[string]any{"begin": naive(x.Begin), "end": naive(x.End), "tenant_id": x.Scope, "resources": []any{}})
		}
		desc := map[string]string{}
		for _, m := range []map[string]string{x.metadata, x.groupby} {
			for name, value := range m {
				desc[name] = value
			}
		}
		resources, _ := frames[i]["resources"].([]any)
		frames[i]["resources"] = append(resources, map[string]any{"rating": x.Price.String(), "service": x.Metric, "desc": desc, "volume": x.Qty.String()})
	}
	return ok(map[string]any{"dataframes": frames})
}
