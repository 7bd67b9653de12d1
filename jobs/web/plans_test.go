package web

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ratebatch/ratebatch/ratebatch/metric"
	"github.com/ratebatch/ratebatch/ratebatch/plan"
	"github.com/ratebatch/ratebatch/ratebatch/store"
	"github.com/ratebatch/ratebatch/ratebatch/store/storetest"
)

// tenantMetrics call projects tenants, in a column that is an attribute by another
// name too.
const tenantMetrics = `
scope_key: tenant
metrics:
  instance: {unit: instance, table: usage, time: at, bucket: 3600, quantity: sum, value: amount, region_key: region, resource: [id], groupby: {flavor: flavor, customer: tenant}}
`

// tenantPlan names acme-corp in every place that a plan can name a project in.
const tenantPlan = `
currency: EUR
groups: [acme-group]
skip: groupby.customer == "acme-skipped"
services:
  - name: instance
    mappings: [{cost: "1.00"}]
    fields:
      - name: tenant
        mappings: [{value: acme-corp, cost: "0.1234", group: acme-group}, {value: initech, cost: "0.9"}]
      - name: customer
        mappings: [{value: acme-corp, cost: "0.1235"}]
discounts: [{percent: "10", id: acme-discount, scope: acme-corp}, {percent: "5", id: all}]
charges: [{kind: cap, amount: "0.1236", scope: acme-corp}]
expressions:
  - {id: favour, when: 'groupby.tenant == "acme-corp"', price: price * 0.5}
  - {id: sum, when: 'groupby.customer == "acme-corp"', price: price * 0.4}
  - {id: own, when: 'groupby.flavor == "m1"', price: price + 1}
`

// What a project's token sees of plans names no other project, by whatever name
// the metric sets call projects.
func TestAProjectsPlanNamesNoOtherProject(t *testing.T) {
	s := storetest.Fresh(t)
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	set, err := metric.Parse("metrics.yaml", []byte(tenantMetrics))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.AddVersion(t.Context(), store.MetricVersions, store.Version{Digest: set.Digest(), Body: tenantMetrics, ValidFrom: time.Unix(0, 0), ValidTo: store.OpenEnd}); err != nil {
		t.Fatal(err)
	}
	for i, text := range []string{"currency: EUR\nservices: [{name: instance, mappings: [{cost: \"1.00\"}]}]\n", tenantPlan} {
		p, err := plan.Parse("plan.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.AddVersion(t.Context(), store.PlanVersions, store.Version{Digest: p.Digest(), Body: text, Currency: "EUR", ValidFrom: time.Unix(int64(i), 0), ValidTo: store.OpenEnd}); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(answer func(c *call) (any, error), body string, values map[string]string) string {
		t.Helper()
		r := httptest.NewRequest(http.MethodPost, "http://localhost/", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		for name, value := range values {
			r.SetPathValue(name, value)
		}
		got, err := answer(&call{Request: r, store: s, now: now, id: Identity{Kind: "token", Name: "own", Project: "initech"}})
		var refused *apiError
		if errors.As(err, &refused) {
			return refused.message
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	server := New(Options{Now: func() time.Time { return now }})
	for name, text := range map[string]string{
		"plan":    ask(func(c *call) (any, error) { return server.plan(t.Context(), c) }, "", map[string]string{"version": "current"}),
		"changes": ask(func(c *call) (any, error) { return server.planDiff(t.Context(), c) }, "", map[string]string{"version": "1", "to": "2"}),
	} {
		if strings.Contains(text, "acme") || strings.Contains(text, "0.123") || !strings.Contains(text, "initech") || !strings.Contains(text, "own") {
			t.Errorf("%s: %s", name, text)
		}
	}
	quote := func(c *call) (any, error) { return server.quote(t.Context(), c) }
	for _, key := range []string{"tenant", "customer", "project_id"} {
		if text := ask(quote, `{"items":[{"metric":"instance","qty":"1","attributes":{"`+key+`":"acme-corp"}}]}`, nil); text != "there is no such project" {
			t.Errorf("quote with %s of another project: %s", key, text)
		}
	}
	if text := ask(quote, `{"items":[{"metric":"instance","qty":"1","attributes":{"tenant":"initech"}}]}`, nil); !strings.Contains(text, `"price":"1"`) || !strings.HasSuffix(text, `"warnings":["discount all of 5 % on every metric is not part of a quote"]}`) {
		t.Errorf("quote of its own: %s", text)
	}
}

// A formula of several lines is one entry of what a plan holds and of what changed.
func TestAFormulaOfSeveralLinesIsOneEntry(t *testing.T) {
	p, err := plan.Parse("plan.yaml", []byte("expressions:\n  - id: long\n    price: |\n      price\n      - 1\n      + qty\n"))
	if err != nil {
		t.Fatal(err)
	}
	const want = "expression long: price - 1 + qty"
	if got := others(p); len(got) != 1 || got[0] != want {
		t.Errorf("others: %q, want %q", got, want)
	}
	if got := changes(&plan.Plan{}, p); len(got) != 1 || got[0] != (change{"added", want}) {
		t.Errorf("changes: %q, want %q added", got, want)
	}
}
