package cloudkitty

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/jobs/web"
	"github.com/ratebatch/ratebatch/ratebatch/plan"
)

// space is what ids of rules are made from when the plan gives them none: the
// same plan has the same ids, on every server.
var space = uuid.MustParse("6d2f0f8e-7d55-5a0e-9a53-3b1c7f1f0a11")

func idOf(parts ...string) string {
	return uuid.NewSHA1(space, []byte(strings.Join(parts, "\x00"))).String()
}

// rules is a plan as CloudKitty's hashmap tables hold it.
type rules struct {
	services, fields, groups, mappings, thresholds []map[string]any
}

func (q *request) rules(ctx context.Context) (rules, error) {
	var out rules
	p, version, err := web.PlanInForce(ctx, q.store, q.now)
	if err != nil || p == nil {
		return out, err
	}
	groups := slices.Clone(p.Groups)
	for _, service := range p.Services {
		out.services = append(out.services, map[string]any{"service_id": idOf("service", service.Name), "name": service.Name})
		for _, field := range service.Fields {
			out.fields = append(out.fields, map[string]any{"field_id": idOf("field", service.Name, field.Name), "name": field.Name, "service_id": idOf("service", service.Name)})
		}
	}
	used := map[string]int{}
	for r := range p.Rules() {
		if r.Group != "" && !slices.Contains(groups, r.Group) {
			groups = append(groups, r.Group)
		}
		x := map[string]any{"type": string(r.Type), "cost": r.Cost.StringFixed(28), "service_id": nil, "field_id": nil, "group_id": nil, "tenant_id": nil}
		if r.Type == "" {
			x["type"] = string(plan.Flat)
		}
		if r.Field == "" {
			x["service_id"] = idOf("service", r.Service)
		} else {
			x["field_id"] = idOf("field", r.Service, r.Field)
		}
		if r.Group != "" {
			x["group_id"] = idOf("group", r.Group)
		}
		if r.Scope != "" {
			x["tenant_id"] = r.Scope
		}
		id := r.ID
		if _, err := uuid.Parse(id); err != nil {
			name := strings.Join([]string{string(r.Kind), r.Service, r.Field, r.Value, r.Level.String(), r.Group, r.Scope, r.ID, plan.FormatTime(r.Start)}, "\x00")
			used[name]++
			id = idOf(name, string(rune('0'+used[name])))
		}
		if r.Kind == plan.ThresholdKind {
			x["threshold_id"], x["level"] = id, r.Level.StringFixed(8)
			out.thresholds = append(out.thresholds, x)
			continue
		}
		x["mapping_id"], x["value"] = id, r.Value
		x["start"], x["end"] = time0(r.Start), time0(r.End)
		x["name"], x["description"], x["created_at"] = r.ID, r.Description, naive(version.AppliedAt)
		x["deleted"], x["created_by"], x["updated_by"], x["deleted_by"] = nil, version.Author, nil, nil
		out.mappings = append(out.mappings, x)
	}
	for _, name := range groups {
		out.groups = append(out.groups, map[string]any{"group_id": idOf("group", name), "name": name})
	}
	return out, nil
}

func time0(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return naive(t)
}

// hashmap is a read-only view of the plan in force.
func (s *Server) hashmap(ctx context.Context, q *request, path string) (answer, error) {
	if err := q.admin(); err != nil {
		return answer{}, err
	}
	if q.Method != http.MethodGet {
		return answer{}, readOnly
	}
	if path == "types" {
		return ok([]string{"flat", "rate"})
	}
	all, err := q.rules(ctx)
	if err != nil {
		return answer{}, err
	}
	kind, rest, _ := strings.Cut(path, "/")
	switch kind {
	case "services":
		return find(all.services, "services", "service_id", rest, nil)
	case "fields":
		if rest == "" && q.get("service_id") == "" {
			return answer{}, bad("service_id is required")
		}
		return find(all.fields, "fields", "field_id", rest, func(x map[string]any) bool { return x["service_id"] == q.get("service_id") })
	case "groups":
		id := q.get("group_id")
		if head, tail, both := strings.Cut(rest, "/"); both {
			id, rest = head, tail
		}
		ofGroup := func(x map[string]any) bool { return x["group_id"] == id }
		switch rest {
		case "mappings":
			return find(all.mappings, "mappings", "mapping_id", "", ofGroup)
		case "thresholds":
			return find(all.thresholds, "thresholds", "threshold_id", "", ofGroup)
		}
		return find(all.groups, "groups", "group_id", rest, nil)
	case "mappings":
		return s.rule(q, all, all.mappings, "mappings", "mapping_id", rest)
	case "thresholds":
		return s.rule(q, all, all.thresholds, "thresholds", "threshold_id", rest)
	}
	return answer{}, &failure{http.StatusMethodNotAllowed, "There is nothing at this address."}
}

// rule answers a list of mappings or thresholds, one of them, or its group.
func (s *Server) rule(q *request, all rules, list []map[string]any, name, key, rest string) (answer, error) {
	id, tail, _ := strings.Cut(rest, "/")
	if id == "group" {
		id, tail = q.get(key), "group"
	}
	if tail == "group" {
		for _, x := range list {
			if x[key] == id && x["group_id"] != nil {
				return find(all.groups, "groups", "group_id", x["group_id"].(string), nil)
			}
		}
		return answer{}, missing("The rule has no group.")
	}
	if id != "" {
		return find(list, name, key, id, nil)
	}
	isTrue := func(name string) bool {
		text := strings.ToLower(q.get(name))
		return text == "true" || text == "1"
	}
	return find(list, name, key, "", func(x map[string]any) bool {
		for _, parent := range []string{"service_id", "field_id", "group_id"} {
			if want := q.get(parent); want != "" && x[parent] != want {
				return false
			}
		}
		if isTrue("no_group") && x["group_id"] != nil {
			return false
		}
		if isTrue("filter_tenant") {
			want := q.get("tenant_id")
			return x["tenant_id"] == want || want == "" && x["tenant_id"] == nil
		}
		return true
	})
}

// find gives one object by its id, or the list of those that are kept.
func find(list []map[string]any, name, key, id string, keep func(map[string]any) bool) (answer, error) {
	out := []map[string]any{}
	for _, x := range list {
		if id != "" && x[key] == id {
			return ok(x)
		}
		if keep == nil || keep(x) {
			out = append(out, x)
		}
	}
	if id != "" {
		return answer{}, missing("No such %s: %.64s", strings.TrimSuffix(name, "s"), id)
	}
	return ok(map[string]any{name: out})
}
