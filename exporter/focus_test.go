package exporter_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/exporter"
	"github.com/ratebatch/ratebatch/exporter/exporttest"
)

func TestUnitPricesMultiplyToTheCost(t *testing.T) {
	s := openStore(t)
	run := uuid.New()
	// Resource, quantity, price: what FOCUS says of them.
	cases := map[string]struct{ qty, price, category, unitPrice, pricingQty, pricingUnit, consumed string }{
		"a unit price":                   {"3", "0.3", "Usage", "0.1", "3", "Instances", "3"},
		"nothing to pay":                 {"3", "0", "Usage", "0", "3", "Instances", "3"},
		"nothing used":                   {"0", "0", "Usage", "0", "0", "Instances", "0"},
		"a quotient without an end":      {"3", "1", "Usage", "1", "1", "Charges", "3"},
		"a price that was rounded":       {"0.333333333333333333", "0.5", "Usage", "0.5", "1", "Charges", "0.333333333333333333"},
		"a flat price for nothing used":  {"0", "2", "Usage", "2", "1", "Charges", "0"},
		"the largest price":              {"1", "10000000000000000000", "Usage", "10000000000000000000", "1", "Instances", "1"},
		"the smallest price":             {"1", "0.000000000000000001", "Usage", "0.000000000000000001", "1", "Instances", "1"},
		"a negative price is a credit":   {"2", "-3", "Credit", "(null)", "2", "Instances", "(null)"},
		"a negative quantity, as priced": {"-2", "4", "Usage", "4", "1", "Charges", "-2"},
	}
	for name, c := range cases {
		exporttest.Insert(t, s, run, 1, exporttest.Line{Scope: "alpha", Begin: exporttest.Hour("2026-03", 0), Resource: name, Qty: c.qty, Price: c.price, Rule: "plan:flat",
			Attributes: map[string]string{"flavor_name": "m1.small"}})
	}
	exporttest.Commit(t, s, run, 1, "alpha", exporttest.Hour("2026-03", 0), exporttest.Hour("2026-04", 0))
	for _, version := range exporter.FocusVersions() {
		dir := t.TempDir()
		in := input(t, s, dir)
		in.Dataset, in.FocusVersion, in.Partition = "focus", version, exporter.Whole
		r := export(t, in)
		got := rows(t, dir, r)
		if len(got) != len(cases) {
			t.Errorf("%d rows", len(got))
		}
		for _, row := range got {
			c := cases[row["ResourceId"].(string)]
			for column, want := range map[string]string{"ChargeCategory": c.category, "ListUnitPrice": c.unitPrice, "ContractedUnitPrice": c.unitPrice, "PricingUnit": c.pricingUnit, "SkuId": "m1.small",
				"SkuPriceId": exporter.SkuPriceID("m1.small", "plan:flat").String()} {
				if !sameNumber(row[column].(string), want) {
					t.Errorf("%s: %s is %v, want %s", row["ResourceId"], column, row[column], want)
				}
			}
			if !sameNumber(row["PricingQuantity"].(string), c.pricingQty) || !sameNumber(row["ConsumedQuantity"].(string), c.consumed) || !sameNumber(row["BilledCost"].(string), c.price) {
				t.Errorf("%s: quantity %v, consumed %v, cost %v", row["ResourceId"], row["PricingQuantity"], row["ConsumedQuantity"], row["BilledCost"])
			}
		}
		path := filepath.Join(dir, filepath.Dir(r.Manifest), manifest(t, dir, r).Files[0].Path)
		if report, err := exporter.FocusCheck(t.Context(), path, version); err != nil || len(report.Findings) > 0 || report.Rows != uint64(len(cases)) {
			t.Errorf("focus check %s: %+v (%v)", version, report, err)
		}
	}
}

// sameNumber compares two texts, as numbers if they are some.
func sameNumber(a, b string) bool {
	x, err := decimal.NewFromString(a)
	y, err2 := decimal.NewFromString(b)
	if err != nil || err2 != nil {
		return a == b
	}
	return x.Equal(y)
}

// Every mandatory column of both versions is looked for, and what a column
// must not hold is found.
func TestFocusCheckFindsWhatIsWrong(t *testing.T) {
	good := map[string]string{
		"BilledCost": "0.3", "BillingAccountId": "a", "BillingAccountName": "", "BillingCurrency": "EUR", "BillingPeriodEnd": "2026-04-01T00:00:00Z", "BillingPeriodStart": "2026-03-01T00:00:00Z",
		"ChargeCategory": "Usage", "ChargeClass": "", "ChargeDescription": "x", "ChargePeriodEnd": "2026-03-01T01:00:00Z", "ChargePeriodStart": "2026-03-01T00:00:00Z",
		"ContractedCost": "0.3", "ContractedUnitPrice": "0.1", "EffectiveCost": "0.3", "HostProviderName": "o", "InvoiceIssuerName": "o", "ListCost": "0.3", "ListUnitPrice": "0.1",
		"PricingQuantity": "3", "PricingUnit": "Hours", "ProviderName": "o", "PublisherName": "o", "ServiceCategory": "Compute", "ServiceName": "s", "ServiceProviderName": "o",
		"SkuId": "k", "SkuPriceId": "p",
	}
	check := func(version string, change map[string]string, without string) exporter.FocusReport {
		t.Helper()
		var names, values []string
		for name, value := range good {
			if name == without {
				continue
			}
			if changed, ok := change[name]; ok {
				value = changed
			}
			names, values = append(names, name), append(values, value)
		}
		path := filepath.Join(t.TempDir(), "focus.csv")
		if err := os.WriteFile(path, []byte(strings.Join(names, ",")+"\n"+strings.Join(values, ",")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		report, err := exporter.FocusCheck(t.Context(), path, version)
		if err != nil {
			t.Fatal(err)
		}
		return report
	}
	for _, version := range exporter.FocusVersions() {
		if r := check(version, nil, ""); len(r.Findings) > 0 {
			t.Fatalf("%s: a good file: %+v", version, r.Findings)
		}
	}
	mandatory := map[string][]string{
		"1.2": {"BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart", "ChargeCategory", "ChargeClass", "ChargeDescription",
			"ChargePeriodEnd", "ChargePeriodStart", "ContractedCost", "EffectiveCost", "InvoiceIssuerName", "ListCost", "PricingQuantity", "PricingUnit", "ProviderName", "PublisherName",
			"ServiceCategory", "ServiceName"},
		"1.3": {"HostProviderName", "ServiceProviderName", "ProviderName", "PublisherName"},
	}
	for version, columns := range mandatory {
		for _, column := range columns {
			if r := check(version, nil, column); !strings.Contains(fmt.Sprint(r.Findings), column+" is missing") {
				t.Errorf("%s without %s: %+v", version, column, r.Findings)
			}
		}
	}
	for rule, change := range map[string]map[string]string{
		"ListUnitPrice × PricingQuantity = ListCost":               {"ListUnitPrice": "0.11"},
		"ContractedUnitPrice × PricingQuantity = ContractedCost":   {"ContractedUnitPrice": "0.11"},
		"ListUnitPrice is not null for usage and purchases":        {"ListUnitPrice": ""},
		"SkuPriceId is not null for usage and purchases":           {"SkuPriceId": ""},
		"SkuPriceId is null for taxes":                             {"ChargeCategory": "Tax"},
		"a unit price is not negative":                             {"ListUnitPrice": "-0.1", "PricingQuantity": "-3"},
		"ListCost of a credit is its BilledCost":                   {"ChargeCategory": "Credit", "ListCost": "1", "ListUnitPrice": "", "ContractedUnitPrice": ""},
		"PricingUnit is null exactly where PricingQuantity is":     {"PricingUnit": ""},
		"ServiceCategory has one of the allowed values":            {"ServiceCategory": "Computers"},
		"dates are UTC and written 2026-11-01T00:00:00Z":           {"ChargePeriodStart": "2026-03-01T00:00:00.000Z"},
		"a correction is of an earlier billing period":             {"ChargeClass": "Correction"},
		"numbers are plain: no exponent, no sign but minus, no th": {"BilledCost": "3E-1"},
	} {
		if r := check("1.2", change, ""); !strings.Contains(fmt.Sprint(r.Findings), rule) {
			t.Errorf("%v: %+v, want %q", change, r.Findings, rule)
		}
	}
}
