package hashmap

import (
	"fmt"
	"testing"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch/plan"
)

// typical is a plan with 20 mappings and 5 thresholds, and points of 40
// flavors and 500 scopes: the shape of the rate_vs_copy bench.
func typical(cost string) (Rules, []Point) {
	r := Rules{Services: []string{"instance"}, Fields: []Field{{"instance", "flavor"}}}
	c := decimal.RequireFromString(cost)
	for i := range 20 {
		r.Rules = append(r.Rules, plan.Rule{
			Kind: plan.MappingKind, ID: fmt.Sprintf("m%d", i+1), Service: "instance", Field: "flavor",
			Value: fmt.Sprintf("m1.%d", i), Type: plan.Flat, Cost: c.Mul(decimal.New(int64(i+1), 0)),
		})
	}
	for i := range 5 {
		r.Rules = append(r.Rules, plan.Rule{
			Kind: plan.ThresholdKind, ID: fmt.Sprintf("t%d", i+1), Service: "instance",
			Level: decimal.New(int64(i)*10, 0), Type: plan.Rate, Cost: decimal.New(100-int64(i), -2),
		})
	}
	points := make([]Point, 20000)
	for i := range points {
		points[i] = Point{
			Metric: "instance", Scope: fmt.Sprintf("project-%d", i%500), Begin: epoch,
			Qty:        decimal.New(int64(i)*1_234_567_891%50_000_000_000_000_000, -15),
			Attributes: map[string]string{"flavor": fmt.Sprintf("m1.%d", i%40), "image": "debian", "id": fmt.Sprint(i)},
		}
	}
	return r, points
}

func BenchmarkPrice(b *testing.B) {
	for name, cost := range map[string]string{
		"typical":          "0.0125",
		"28-digit costs":   "0.0125000000000000000000000001",
		"cost of one byte": "0.000000000931322574615478515625",
	} {
		b.Run(name, func(b *testing.B) {
			r, points := typical(cost)
			e := CompileRules(r)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				e.Price(&points[i%len(points)])
				i++
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "points/s")
		})
	}
}

func BenchmarkFold(b *testing.B) {
	r, points := typical("0.0125")
	e := CompileRules(r)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		p := &points[i%len(points)]
		e.Fold(p.Metric, p.Scope, p.Attributes, p.Begin)
		i++
	}
}

func BenchmarkExplain(b *testing.B) {
	r, points := typical("0.0125")
	e := CompileRules(r)
	i := 0
	for b.Loop() {
		e.Explain(&points[i%len(points)])
		i++
	}
}
