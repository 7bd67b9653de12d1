package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ratebatch/ratebatch/ratebatch/plan"
)

func BenchmarkParse(b *testing.B) {
	for _, n := range []int{100, 100_000} {
		b.Run(fmt.Sprintf("%d mappings", n), func(b *testing.B) {
			var text strings.Builder
			text.WriteString("currency: EUR\nservices:\n  - name: vm\n    fields:\n      - name: f\n        mappings:\n")
			for i := range n {
				fmt.Fprintf(&text, "          - {value: v%d, cost: \"0.0123\"}\n", i)
			}
			data := []byte(text.String())
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				p, err := plan.Parse("plan.yaml", data)
				if err != nil {
					b.Fatal(err)
				}
				if found := p.Validate(nil); len(found) > 0 {
					b.Fatal(found)
				}
			}
		})
	}
}
