package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/ratebatch/ratebatch/ratebatch/engine"
	"github.com/ratebatch/ratebatch/ratebatch/engine/enginetest"
	"github.com/ratebatch/ratebatch/ratebatch/hashmap"
	"github.com/ratebatch/ratebatch/ratebatch/plan"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

// usageOf gives the shared database with usage, rated to the end of November.
func usageOf(t testing.TB, plan string, statements ...string) (flags []string, e *engine.Engine) {
	t.Helper()
	e = storetest.Shared(t)
	flags = []string{"--data", enginetest.Options(t).DataDir, "--database", e.Database()}
	for _, text := range statements {
		if err := e.Conn().Exec(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	must(t, append(flags, "watermark", "--region", "one", "--until", "2026-12-01T00:00:00Z")...)
	must(t, append(flags, "plan", "apply", planFile(t, plan))...)
	must(t, append(flags, "rate", "--now", "2026-12-05T00:00:00Z")...)
	return flags, e
}

// A line of a closed month is explained as it was billed, whatever was rated
// since; what counts now is shown on request.
func TestExplainTellsOfTheLineThatWasBilled(t *testing.T) {
	const plan = "currency: EUR\nservices:\n  - name: instance\n    mappings: [{cost: \"%s\", type: flat}]\n"
	flags, _ := usageOf(t, fmt.Sprintf(plan, "10"), `INSERT INTO instance_metrics_hourly (bucket, region, instance_uuid, project_id, flavor_name, vcpus, instance_name, samples, samples_ended, covered_seconds)
		SELECT toDateTime('2026-11-30 10:00:00', 'UTC') + 3600 * number, 'one', toUUID('00000000-0000-4000-8000-000000000001'), 'a', 'm1', 1, 'vm', 60, 60, 3600 FROM numbers(2)`)
	const at = "2026-12-05T00:00:00Z"
	must(t, append(flags, "close", "--month", "2026-11", "--now", at)...)
	must(t, append(flags, "plan", "apply", planFile(t, fmt.Sprintf(plan, "12")), "--from", "2026-11-01", "--force", "--reason", "x")...)
	must(t, append(flags, "reprocess", "add", "--all", "--from", "2026-11-30T10:00:00Z", "--to", "2026-11-30T11:00:00Z", "--reason", "x", "--now", at)...)
	must(t, append(flags, "reprocess", "run", "--now", at)...)
	explain := func(args ...string) (x struct {
		ID       string `json:"line_id"`
		Price    string
		Revision int
	}) {
		t.Helper()
		out := must(t, append(append(flags, "explain", "--output", "json"), args...)...)
		if err := json.Unmarshal([]byte(out), &x); err != nil {
			t.Fatalf("%v in %s", err, out)
		}
		return x
	}
	named := []string{"--scope", "a", "--begin", "2026-11-30T10:00:00Z", "--metric", "instance"}
	billed := explain(named...)
	for _, args := range [][]string{named, {billed.ID}, {billed.ID, "--month", "2026-11"}, {billed.ID, "--scope", "a"}} {
		if x := explain(args...); x.Price != "10" || x.Revision != 1 || x.ID != billed.ID {
			t.Errorf("explain %v: %+v, want price 10 of revision 1", args, x)
		}
		if x := explain(append(args, "--current")...); x.Price != "12" || x.Revision != 2 {
			t.Errorf("explain %v --current: %+v, want price 12 of revision 2", args, x)
		}
	}

	// In the API it is the line that the list shows.
	s := startServeAt(t, clockOf(t, at), flags...)
	var lines struct {
		Lines []struct {
			ID    string `json:"line_id"`
			Price string
		}
	}
	s.get(t, "/api/v1/lines?month=2026-11&metric=instance", &lines)
	if len(lines.Lines) != 2 || lines.Lines[0].ID != billed.ID || lines.Lines[0].Price != "10" {
		t.Fatalf("lines: %+v", lines)
	}
	var x struct{ Price string }
	s.get(t, "/api/v1/lines/"+billed.ID+"/explain?project=a&begin=2026-11-30T10:00:00Z", &x)
	if x.Price != "10" {
		t.Errorf("the billed line costs 10, its explanation says %s", x.Price)
	}

	// Each price has its own currency: that of the plan which rated the line, and
	// that of the plan now in force there.
	must(t, append(flags, "plan", "apply", planFile(t, strings.Replace(fmt.Sprintf(plan, "10"), "EUR", "USD", 1)), "--from", "2026-11-01", "--force", "--reason", "x")...)
	var of struct {
		Currency   string
		CurrencyBy string `json:"currency_by_the_plan"`
		PriceBy    string `json:"price_by_the_plan"`
	}
	s.get(t, "/api/v1/lines/"+billed.ID+"/explain?project=a&begin=2026-11-30T10:00:00Z", &of)
	if of.Currency != "EUR" || of.CurrencyBy != "USD" || of.PriceBy != "10" {
		t.Errorf("currencies: %+v, want EUR, and 10 USD by the plan in force", of)
	}
	out := must(t, append(append(flags, "explain"), named...)...)
	if !strings.Contains(out, "price 10 EUR\n") || !strings.Contains(out, "now gives 10 USD: the line was rated by another version") {
		t.Errorf("explained:\n%s", out)
	}
}

// An instance that changed hands within an hour: whoever sees one project sees
// neither the other's samples and hosts nor its rules.
func TestOneProjectIsToldNothingOfAnotherThatHadTheInstance(t *testing.T) {
	const vm = "00000000-0000-4000-8000-000000000001"
	plan := `
currency: EUR
services:
  - name: instance
    mappings: [{cost: "1", type: flat}, {id: theirs, cost: "2", type: flat, scope: Project-A}]
    fields:
      - name: project_id
        mappings: [{id: ours-by-name, value: project-a, cost: "3", type: flat}, {id: theirs-by-name, value: Project-A, cost: "4", type: flat}]
expressions:
  - {id: friends, when: 'scope == "project-b"', price: price * 2}
  - {id: us, when: 'scope != "project-b"', price: 'scope == "project-b" ? 0 : price * 3'}
`
	const attributes = "project_id, user_id, flavor_name, vcpus, instance_name, host"
	flags, _ := usageOf(t, plan,
		`INSERT INTO instance_metrics_hourly (bucket, region, instance_uuid, samples, samples_ended, covered_seconds, refreshed_at, `+attributes+`) VALUES
			('2026-11-30 10:00:00', 'one', '`+vm+`', 30, 30, 1800, '2026-11-30 11:00:00', 'project-a', 'user-a', 'm1', 1, 'name-a', 'host-a'),
			('2026-11-30 10:00:00', 'one', '`+vm+`', 30, 30, 1800, '2026-11-30 11:00:00', 'project-b', 'user-b', 'm1', 1, 'name-b', 'host-b'),
			('2026-11-30 11:00:00', 'one', '`+vm+`', 60, 60, 3600, '2026-11-30 12:00:00', 'project-b', 'user-b', 'm1', 1, 'name-b', 'host-b')`,
		`INSERT INTO instance_samples (region, epoch, sequence, begin, ts, instance_uuid, cpu_pct, `+attributes+`) VALUES
			('one', 1, 1, '2026-11-30 10:00:00', '2026-11-30 10:30:00', '`+vm+`', 1, 'project-a', 'user-a', 'm1', 1, 'name-a', 'host-a'),
			('one', 1, 2, '2026-11-30 10:30:00', '2026-11-30 11:00:00', '`+vm+`', 1, 'project-b', 'user-b', 'm1', 1, 'name-b', 'host-b')`)
	file, tokens := tokensFile(t, "", "project-a")
	s := startServeAt(t, clockOf(t, "2026-12-01T05:00:00Z"), append(flags, "--tokens", file)...)
	s.token = tokens["project-a"]
	var lines struct {
		Lines []struct {
			ID    string `json:"line_id"`
			Price string
		}
	}
	s.get(t, "/api/v1/lines?month=2026-11&metric=instance", &lines)
	if len(lines.Lines) != 1 {
		t.Fatalf("lines of project-a: %+v", lines)
	}
	explain := "/api/v1/lines/" + lines.Lines[0].ID + "/explain?project=project-a&begin=2026-11-30T10:00:00Z"
	type told struct {
		Price      string
		Planned    string   `json:"price_by_the_plan"`
		Counted    []string `json:"rules_that_counted"`
		Nearly     []string `json:"rules_that_did_not"`
		Arithmetic []string
		Tier       []any `json:"tier_rows"`
		Samples    []any
	}
	var x told
	s.get(t, explain, &x)
	if x.Price != lines.Lines[0].Price || x.Planned != x.Price || len(x.Counted) == 0 || len(x.Tier) != 1 || len(x.Samples) != 1 || len(x.Arithmetic) < 3 {
		t.Errorf("what a project is told of its own line: %+v", x)
	}
	for _, path := range []string{explain, "/api/v1/instances/" + vm} {
		_, _, body := s.ask(t, http.MethodGet, path, "")
		for _, other := range []string{"project-b", "user-b", "name-b", "host-b", "Project-A", "theirs"} {
			if strings.Contains(string(body), other) {
				t.Errorf("%s names %s: %s", path, other, body)
			}
		}
		if !strings.Contains(string(body), "host-a") {
			t.Errorf("%s does not name the project's own host: %s", path, body)
		}
	}
	// Who sees all is told all.
	s.token = tokens[""]
	_, _, body := s.ask(t, http.MethodGet, explain, "")
	for _, part := range []string{"user-b", "host-b", "theirs-by-name", `when scope == \"project-b\"`} {
		if !strings.Contains(string(body), part) {
			t.Errorf("an operator is not told of %s: %s", part, body)
		}
	}
}

// What a trace says of other projects is left out by whatever name the metric sets
// call projects, in rules and in expressions.
func TestATraceNamesNoOtherProject(t *testing.T) {
	p, err := plan.Parse("plan.yaml", []byte(`
skip: groupby.tenant == "acme-corp"
expressions: [{id: favour, when: 'groupby.tenant == "acme-corp"', price: price * 0.5}]`))
	if err != nil {
		t.Fatal(err)
	}
	trace := hashmap.Trace{Considered: []hashmap.Considered{{Rule: plan.Rule{ID: "m1", Field: "tenant", Value: "acme-corp"}}, {Rule: plan.Rule{ID: "m2", Field: "tenant", Value: "initech"}}},
		Arithmetic: []string{"skipped: " + p.Skip, "expression favour: not when " + p.Expressions[0].When, "skipped: groupby.flavor == \"m1\""}}
	got := ownTrace(trace, p, "initech", []string{"project_id", "scope", "tenant"})
	if text := fmt.Sprint(got); strings.Contains(text, "acme") || len(got.Considered) != 1 || got.Considered[0].Rule.ID != "m2" || !strings.Contains(text, "flavor") {
		t.Errorf("%+v", got)
	}
}
