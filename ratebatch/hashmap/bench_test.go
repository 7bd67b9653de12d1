package hashmap

import (
	"fmt"
	"syscall"
	"testing"
	"time"

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
			before := cpuTime(b)
			for b.Loop() {
				e.Price(&points[i%len(points)])
				i++
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "points/s")
			b.ReportMetric(float64(b.N)/(cpuTime(b)-before).Seconds(), "points/cpu-s") // a shared machine's clock tells little
		})
	}
}

// cpuTime is the time that this process has spent on processors.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// large is a plan of n values and of scopes with ten rules of their own each.
func large(values, scopes int) Rules {
	r := Rules{Services: []string{"instance"}, Fields: []Field{{"instance", "flavor"}}}
	add := func(scope, value string, cost int) {
		r.Rules = append(r.Rules, plan.Rule{
			Kind: plan.MappingKind, ID: fmt.Sprintf("m%d", len(r.Rules)+1), Service: "instance", Field: "flavor",
			Value: value, Scope: scope, Type: plan.Flat, Cost: decimal.New(int64(cost), -4),
		})
	}
	for i := range values {
		add("", fmt.Sprintf("v%d", i), i%1000)
	}
	for i := range scopes {
		for j := range 10 {
			add(fmt.Sprintf("project-%d", i), fmt.Sprintf("v%d", (i*7+j)%values), j)
		}
	}
	return r
}

func BenchmarkLargePlan(b *testing.B) {
	for _, size := range []struct{ values, scopes int }{{100_000, 0}, {1_000, 10_000}} {
		name := fmt.Sprintf("%d values, %d scopes", size.values, size.scopes)
		rules := large(size.values, size.scopes)
		b.Run("compile/"+name, func(b *testing.B) {
			for b.Loop() {
				CompileRules(rules)
			}
		})
		b.Run("fold/"+name, func(b *testing.B) {
			e := CompileRules(rules)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				e.Fold("instance", fmt.Sprintf("project-%d", i%max(1, size.scopes)), map[string]string{"flavor": fmt.Sprintf("v%d", i%size.values)}, epoch)
				i++
			}
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
