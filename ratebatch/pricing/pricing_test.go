package pricing_test

import (
	"context"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"github.com/ratebatch/ratebatch/ratebatch/engine/enginetest"
	"github.com/ratebatch/ratebatch/ratebatch/hashmap"
	"github.com/ratebatch/ratebatch/ratebatch/pricing"
)

func TestMain(m *testing.M) { enginetest.Main(m) }

func dec(text string) decimal.Decimal { return decimal.RequireFromString(text) }

func level(text string) *decimal.Decimal {
	d := dec(text)
	return &d
}

// point is one row of usage.
type point struct {
	scope string
	begin time.Time
	field string
	qty   decimal.Decimal
}

// answer is what a row came to.
type answer struct {
	price        decimal.Decimal
	rule, bucket string
}

// ask prices the points in SQL; rows for Go are left out.
func ask(t rapid.TB, conn driver.Conn, e pricing.Expression, points []point, condition string) map[int]answer {
	t.Helper()
	var rows []string
	for i, p := range points {
		rows = append(rows, fmt.Sprintf("(%d, %s, %d, %s, '%s')", i, literal(p.scope), p.begin.Unix(), literal(p.field), p.qty.StringFixed(18)))
	}
	columns := e.Columns
	if condition == e.GoGuard {
		columns = "toDecimal128(0, 18) AS price, '' AS rule, '' AS bucket"
	}
	text := fmt.Sprintf(`SELECT n, price, rule, bucket FROM (SELECT n, %s FROM (SELECT *, %s FROM (
	SELECT x.1 AS n, toLowCardinality(x.2) AS scope, toDateTime(x.3, 'UTC') AS begin, toLowCardinality(x.4) AS f_0, toDecimal128(x.5, 18) AS qty
	FROM (SELECT arrayJoin([%s]::Array(Tuple(UInt32, String, UInt32, String, String))) AS x))) WHERE %s)`, columns, e.Inner, strings.Join(rows, ","), condition)
	result, err := conn.Query(context.Background(), text)
	if err != nil {
		t.Fatalf("%s\n%.3000s", err, text)
	}
	defer result.Close()
	out := map[int]answer{}
	for result.Next() {
		var n uint32
		var a answer
		if err := result.Scan(&n, &a.price, &a.rule, &a.bucket); err != nil {
			t.Fatal(err)
		}
		out[int(n)] = a
	}
	if err := result.Err(); err != nil {
		t.Fatalf("%.500s", err)
	}
	return out
}

func literal(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(text) + "'"
}

// exact is a·qty + b, rounded half-even to 18 decimals with big integers: an
// implementation of its own, to compare with.
func exact(a, b, qty decimal.Decimal) decimal.Decimal {
	x := a.Mul(qty).Add(b)
	rat := x.Rat()
	rat.Mul(rat, new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(18), nil)))
	quotient, remainder := new(big.Int).DivMod(rat.Num(), rat.Denom(), new(big.Int))
	twice := new(big.Int).Lsh(remainder, 1)
	if c := twice.Cmp(rat.Denom()); c > 0 || c == 0 && quotient.Bit(0) == 1 {
		quotient.Add(quotient, big.NewInt(1))
	}
	return decimal.NewFromBigInt(quotient, -18)
}

func step(f hashmap.Folded, qty decimal.Decimal) hashmap.Step { return *f.At(qty) }

// Any coefficients, any quantities, ties and levels included: SQL gives the
// exact price or leaves the row to Go, never a wrong one.
func TestPropertySQLPricesExactly(t *testing.T) {
	conn := enginetest.Open(t).Conn()
	begin := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	edge := begin.Add(12 * time.Hour)
	total, inGo, forms := 0, 0, map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		number := func(label string, digits, scale int) decimal.Decimal {
			text := rapid.StringMatching(fmt.Sprintf("[0-9]{1,%d}", digits)).Draw(t, label)
			d := decimal.NewFromBigInt(bigInt(text), -int32(rapid.IntRange(0, scale).Draw(t, label+" scale")))
			if rapid.IntRange(0, 5).Draw(t, label+" sign") == 0 {
				d = d.Neg()
			}
			return d
		}
		// Whole coefficients have the cheapest form of their own; drawn by chance
		// alone they would be rarer than a run has tries.
		size := rapid.SampledFrom([]struct{ digits, scale, bScale, qty int }{{3, 0, 18, 18}, {3, 2, 20, 18}, {6, 6, 20, 24}, {20, 19, 20, 30},
			{40, 30, 20, 38}, {30, 46, 20, 38}}).Draw(t, "size")
		values := []string{"m1.small", "it's", `back\slash`, ""}[:rapid.IntRange(1, 4).Draw(t, "values")]
		scopes := []string{"own"}[:rapid.IntRange(0, 1).Draw(t, "scopes")]
		boundaries := []time.Time{edge}[:rapid.IntRange(0, 1).Draw(t, "boundaries")]
		var combos []pricing.Combo
		var points []point
		var folded []hashmap.Folded
		for window := range len(boundaries) + 1 {
			for class := range len(scopes) + 1 {
				for _, value := range values {
					f := hashmap.Folded{}
					if rapid.IntRange(0, 9).Draw(t, "reject") == 0 {
						f.Reject = "no number"
					} else {
						f.Steps = []hashmap.Step{{A: number("a", size.digits, size.scale), B: decimal.Zero, Rule: "m1"}}
						if rapid.Bool().Draw(t, "thresholds") {
							f.Steps = append(f.Steps, hashmap.Step{From: level("1.5"), A: number("a2", size.digits, size.scale), B: number("b2", 10, size.bScale), Rule: "m1+t1"},
								hashmap.Step{From: level("1000000"), Unpriced: true})
						}
					}
					c := pricing.Combo{Window: window, Class: class, Values: []string{value}, Folded: f}
					scope := "other"
					if class > 0 {
						scope = "own"
					}
					at := begin
					if window > 0 {
						at = edge
					}
					for i := range 20 {
						var qty decimal.Decimal
						switch {
						case i < 10:
							qty = number("qty", size.qty, 18)
						default:
							qty = rapid.SampledFrom([]decimal.Decimal{dec("0"), dec("1.5"), dec("1.499999999999999999"), dec("0.5"), dec("0.000000000000000001"),
								dec("999999.999999999999999999"), dec("1000000"), dec("-2.5"), dec("0.000000000000000005")}).Draw(t, "edge")
						}
						if qty.Abs().GreaterThanOrEqual(dec("1e20")) {
							qty = dec("99999999999999999999.999999999999999999")
						}
						qty = qty.Truncate(18)
						if i == 0 || qty.LessThan(c.Min) {
							c.Min = qty
						}
						if i == 0 || qty.GreaterThan(c.Max) {
							c.Max = qty
						}
						points = append(points, point{scope, at, value, qty})
						folded = append(folded, f)
					}
					combos = append(combos, c)
				}
			}
		}
		e, err := pricing.Build(pricing.Input{Boundaries: boundaries, Scopes: scopes, Fields: 1, Combos: combos})
		if err != nil {
			t.Fatal(err)
		}
		forms[e.Form]++
		got := ask(t, conn, e, points, e.Guard)
		rest := map[int]answer{}
		if e.GoGuard != "" {
			rest = ask(t, conn, e, points, e.GoGuard)
		}
		for i, p := range points {
			total++
			a, inSQL := got[i]
			_, left := rest[i]
			if inSQL == left {
				t.Fatalf("point %d %+v: in SQL %v, left to Go %v: each row must come exactly once", i, p, inSQL, left)
			}
			if left {
				inGo++
				continue
			}
			want := answer{}
			if folded[i].Reject != "" {
				want = answer{decimal.Zero, folded[i].Reject, string(hashmap.Rejected)}
			} else if s := step(folded[i], p.qty); s.Unpriced {
				want = answer{decimal.Zero, s.Rule, string(hashmap.Unpriced)}
			} else {
				want = answer{exact(s.A, s.B, p.qty), s.Rule, ""}
			}
			if !a.price.Equal(want.price) || a.rule != want.rule || a.bucket != want.bucket {
				t.Fatalf("%s form, point %+v, folded %+v:\n got %+v\nwant %+v", e.Form, p, folded[i], a, want)
			}
		}
	})
	t.Logf("%d points, %d left to Go, forms %v", total, inGo, forms)
	for _, form := range []string{"exact", "int128", "reciprocal"} {
		if forms[form] == 0 {
			t.Errorf("the %s form was never chosen", form)
		}
	}
	if inGo == 0 || inGo > total/2 {
		t.Errorf("%d of %d points were left to Go", inGo, total)
	}
}

func bigInt(text string) *big.Int {
	n, _ := new(big.Int).SetString(text, 10)
	return n
}

// Usage that was not there when prices were folded stops the statement.
func TestUnfoldedUsageThrows(t *testing.T) {
	conn := enginetest.Open(t).Conn()
	begin := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	e, err := pricing.Build(pricing.Input{Scopes: []string{"own"}, Fields: 1, Combos: []pricing.Combo{
		{Values: []string{"a"}, Min: dec("1"), Max: dec("2"), Folded: hashmap.Folded{Steps: []hashmap.Step{{A: dec("0.1")}}}},
		{Values: []string{"b"}, Min: dec("1"), Max: dec("3"), Folded: hashmap.Folded{Steps: []hashmap.Step{{A: dec("0.2")}}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if got := ask(t, conn, e, []point{{"x", begin, "a", dec("2")}, {"x", begin, "b", dec("3")}}, e.Guard); len(got) != 2 {
		t.Fatalf("folded usage gave %v", got)
	}
	for name, p := range map[string]point{
		"a value that was not seen":       {"x", begin, "c", dec("1")},
		"a quantity larger than any":      {"x", begin, "a", dec("2.000000000000000001")},
		"a scope class that was not seen": {"own", begin, "a", dec("1")},
		"a large negative quantity":       {"x", begin, "a", dec("-2.1")},
	} {
		t.Run(name, func(t *testing.T) {
			text := fmt.Sprintf("SELECT price FROM (SELECT %s FROM (SELECT *, %s FROM (SELECT toLowCardinality(%s) AS scope, toDateTime(0, 'UTC') AS begin, toLowCardinality(%s) AS f_0, toDecimal128('%s', 18) AS qty)) WHERE %s)",
				e.Columns, e.Inner, literal(p.scope), literal(p.field), p.qty.StringFixed(18), e.Guard)
			rows, err := conn.Query(t.Context(), text)
			if err == nil {
				for rows.Next() {
				}
				err = rows.Err()
				rows.Close()
			}
			if err == nil || !strings.Contains(err.Error(), pricing.ChangedMessage) {
				t.Errorf("error = %v, want %q", err, pricing.ChangedMessage)
			}
		})
	}
}

// Many values are looked up by hash; the answers stay the same.
func TestManyCombinations(t *testing.T) {
	conn := enginetest.Open(t).Conn()
	begin := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	var combos []pricing.Combo
	var points []point
	var scopes []string
	for s := range 300 {
		scopes = append(scopes, fmt.Sprintf("scope-%d", s))
		for v := range 10 {
			value := fmt.Sprintf("flavor-%d", (s*7+v*13)%900)
			if slices.ContainsFunc(combos, func(c pricing.Combo) bool { return c.Class == s+1 && c.Values[0] == value }) {
				continue
			}
			price := decimal.New(int64(s*1000+v), -5)
			combos = append(combos, pricing.Combo{Class: s + 1, Values: []string{value}, Min: dec("1"), Max: dec("3"),
				Folded: hashmap.Folded{Steps: []hashmap.Step{{A: price, Rule: fmt.Sprintf("m%d", s)}}}})
			points = append(points, point{scopes[s], begin, value, dec("3")})
		}
	}
	e, err := pricing.Build(pricing.Input{Scopes: scopes, Fields: 1, Combos: combos})
	if err != nil {
		t.Fatal(err)
	}
	got := ask(t, conn, e, points, e.Guard)
	for i := range points {
		want := combos[i].Folded.Steps[0].A.Mul(dec("3"))
		if !got[i].price.Equal(want) || got[i].rule != combos[i].Folded.Steps[0].Rule {
			t.Fatalf("%+v = %+v, want %s by %s", points[i], got[i], want, combos[i].Folded.Steps[0].Rule)
		}
	}
}
