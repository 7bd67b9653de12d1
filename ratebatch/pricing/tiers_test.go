package pricing_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch/engine/enginetest"
	"github.com/ratebatch/ratebatch/ratebatch/hashmap"
	"github.com/ratebatch/ratebatch/ratebatch/plan"
	"github.com/ratebatch/ratebatch/ratebatch/pricing"
)

// Whatever a tier costs and whatever a quantity is, the price is exact or the
// row is rejected, in each form of the arithmetic.
func TestTierPricesAreExactInEveryForm(t *testing.T) {
	conn := enginetest.Open(t).Conn()
	tie := "0.000000000000000001"
	for name, tt := range map[string]struct {
		form       string
		costs      []string
		quantities []string
	}{
		"whole costs":             {"exact", []string{"0", "3", "700"}, []string{"0", "1", "-2.5", "1000000", tie, "0.123456789012345678"}},
		"cents":                   {"int128", []string{"0.05", "0.5", "1.25"}, []string{"0", tie, "0.000000000000000003", "-0.000000000000000003", "-0.000000000000000001", "123456.789"}},
		"many decimals":           {"reciprocal", []string{"0.0000000000000000000000000005", "0.5", "0.1234567890123456789012345678"}, []string{"0", tie, "3", "-3", "1000.000000000000000001"}},
		"beyond the reciprocal":   {"wide", []string{"0.0000000000000000000000000005", "0.5", "999999999999"}, []string{"0", "3", "-3", tie, "99999999999999999999.999999999999999999", "-99999999999999999999.999999999999999999", "100000000.0001"}},
		"around the largest ever": {"wide", []string{"10", "10.0000000000000000000000000001"}, []string{"9999999999999999999.999999999999999999", "10000000000000000000", "-10000000000000000000", "-9999999999999999999.999999999999999999", "9999999999999999999.9"}},
	} {
		t.Run(name, func(t *testing.T) {
			tariff := &hashmap.Tariff{ID: "g", Kind: plan.Graduated, Per: plan.PerScope}
			for i, c := range tt.costs {
				tariff.Costs = append(tariff.Costs, dec(c))
				if i > 0 {
					tariff.Edges = append(tariff.Edges, decimal.New(int64(i), 0))
				}
			}
			combo := pricing.Combo{Values: []string{}, Folded: hashmap.Folded{Steps: []hashmap.Step{{Unpriced: true}}}}
			for _, q := range tt.quantities {
				combo.Min, combo.Max = decimal.Min(combo.Min, dec(q)), decimal.Max(combo.Max, dec(q))
			}
			e, err := pricing.BuildTiers(pricing.TierInput{Metric: "m", Combos: []pricing.TierCombo{{Combo: combo, Tariff: tariff}}})
			if err != nil {
				t.Fatal(err)
			}
			if e.Form != tt.form {
				t.Errorf("the form is %s, want %s", e.Form, tt.form)
			}
			var rows []string
			for _, q := range tt.quantities {
				for tier := range tariff.Costs {
					rows = append(rows, fmt.Sprintf("('%s', %d)", dec(q).StringFixed(18), tier+1))
				}
			}
			text := fmt.Sprintf(`SELECT toString(qty), tier, toString(price), rule, bucket FROM (SELECT qty, tier, %s FROM (SELECT *, %s AS c_ FROM (SELECT *, %s FROM (
				SELECT toDecimal128(x.1, 18) AS qty, x.2 AS tier, 'r' AS resource, 's' AS scope, toDateTime(0, 'UTC') AS begin FROM (SELECT arrayJoin([%s]::Array(Tuple(String, UInt16))) AS x))) WHERE %s))`,
				e.Columns, e.Coefficient("t_", "tier"), e.Inner, strings.Join(rows, ","), e.Guard)
			result, err := conn.Query(t.Context(), text)
			if err != nil {
				t.Fatalf("%s\n%.2000s", err, text)
			}
			defer result.Close()
			n := 0
			for result.Next() {
				var qty, price, rule, bucket string
				var tier uint16
				if err := result.Scan(&qty, &tier, &price, &rule, &bucket); err != nil {
					t.Fatal(err)
				}
				n++
				want := exact(tariff.Costs[tier-1], decimal.Zero, dec(qty))
				wantRule, wantBucket := tariff.Rule(int(tier)-1), ""
				if want.Abs().GreaterThanOrEqual(dec("1e20")) {
					want, wantRule, wantBucket = decimal.Zero, hashmap.OutOfRange, string(hashmap.Rejected)
				}
				if !dec(price).Equal(want) || rule != wantRule || bucket != wantBucket {
					t.Errorf("%s × %s = %s %q %q, want %s %q %q", tariff.Costs[tier-1], qty, price, rule, bucket, want, wantRule, wantBucket)
				}
			}
			if err := result.Err(); err != nil {
				t.Fatal(err)
			}
			if n != len(rows) {
				t.Errorf("%d rows of %d were priced", n, len(rows))
			}
		})
	}
}
