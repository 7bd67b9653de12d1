package rate

import (
	"testing"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch/hashmap"
	"github.com/ratebatch/ratebatch/ratebatch/plan"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// A period is rated again for another carry-in exactly when a line of it
// changes.
func TestTariffDiffers(t *testing.T) {
	dec := decimal.RequireFromString
	tariff := func(kind plan.TierKind) *hashmap.Tariff {
		return &hashmap.Tariff{ID: "g", Kind: kind, Edges: []decimal.Decimal{dec("10"), dec("20")}, Costs: []decimal.Decimal{dec("3"), dec("2"), dec("1")}}
	}
	for name, tt := range map[string]struct {
		kind          plan.TierKind
		was, is, used string
		want          bool
	}{
		"graduated, within one tier":                  {plan.Graduated, "0", "5", "5", false},
		"graduated, just past the edge":               {plan.Graduated, "0", "5.000000000000000001", "5", true},
		"graduated, begins in the next tier":          {plan.Graduated, "9", "10", "1", true},
		"graduated, both in the last tier":            {plan.Graduated, "20", "5000", "7", false},
		"graduated, cut before and not now":           {plan.Graduated, "9", "12", "2", true},
		"graduated, cut at another place":             {plan.Graduated, "9", "8", "3", true},
		"graduated, nothing used in the same tier":    {plan.Graduated, "1", "9.9", "0", false},
		"graduated, nothing used at the edge":         {plan.Graduated, "9.9", "10", "0", true},
		"volume, within one tier":                     {plan.Volume, "1", "2", "8", false},
		"volume, ends in another tier":                {plan.Volume, "1", "3", "8", true},
		"volume, another quantity to adjust":          {plan.Volume, "9", "8", "4", true},
		"volume, nothing to adjust before, now there": {plan.Volume, "11", "9", "4", true},
		"volume, nothing to adjust at all":            {plan.Volume, "11", "12", "4", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tariffDiffers(tariff(tt.kind), dec(tt.was), dec(tt.is), dec(tt.used)); got != tt.want {
				t.Errorf("from %s to %s with %s used: %v, want %v", tt.was, tt.is, tt.used, got, tt.want)
			}
		})
	}
}

func TestClosing(t *testing.T) {
	dec := decimal.RequireFromString
	m := store.MonthCharges{Priced: true, Others: []string{"internal"},
		Minimums: []store.ChargeRule{{ID: "a", Amount: dec("5")}, {ID: "b", Scope: "own", Amount: dec("7")}},
		Caps:     []store.ChargeRule{{ID: "c", Amount: dec("100")}}}
	for name, tt := range map[string]struct{ scope, cameTo, want string }{
		"below the minimum":         {"x", "4.999999999999999999", "0.000000000000000001"},
		"at the minimum":            {"x", "5", "0"},
		"a scope's own minimum":     {"own", "5", "2"},
		"at the cap":                {"x", "100", "0"},
		"just above the cap":        {"x", "100.000000000000000001", "-0.000000000000000001"},
		"a scope without modules":   {"internal", "0", "0"},
		"a month that gave back":    {"x", "-3", "8"},
		"the general cap for owner": {"own", "101", "-1"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := closing(m, tt.scope, dec(tt.cameTo)); !got.Equal(dec(tt.want)) {
				t.Errorf("closing(%s) = %s, want %s", tt.cameTo, got, tt.want)
			}
		})
	}
}
