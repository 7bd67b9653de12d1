package expr_test

import (
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"github.com/ratebatch/ratebatch/ratebatch/expr"
)

func dec(s string) decimal.Decimal { return decimal.RequireFromString(s) }

func env() *expr.Env {
	return &expr.Env{
		Qty: dec("2.5"), Price: dec("0.1"), Metric: "instance", Unit: "hour", Scope: "alpha",
		Attributes: map[string]string{"flavor": "m1.tiny", "vcpus": " 4 ", "empty": "", "os-type": "Linux"},
		Begin:      time.Date(2026, 3, 1, 23, 0, 0, 0, time.UTC), // a Sunday
	}
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"price":                       "0.1",
		"price + 0.2":                 "0.3", // exactly, unlike a binary float
		"0.1 * 3":                     "0.3",
		"-qty - -1":                   "-1.5",
		"+qty":                        "2.5",
		"1 + 2 * 3":                   "7",
		"(1 + 2) * 3":                 "9",
		"qty / 1048576":               "0.000002384185791015625",
		"1 / 3":                       "0.3333333333333333333333333333",
		"2 / 3":                       "0.6666666666666666666666666667",
		"-2 / 3":                      "-0.6666666666666666666666666667",
		"1 / -0.05":                   "-20",
		"qty > 2 ? 10 : 20":           "10",
		"qty > 2.5 ? 10 : 20":         "20",
		"max(0, qty - 100) * 0.02":    "0",
		"min(qty, 1, 3)":              "1",
		"abs(-qty)":                   "2.5",
		"floor(qty) + ceil(qty)":      "5",
		"floor(-qty)":                 "-3",
		"round(qty, 0)":               "2", // half-even
		"round(0.125, 2)":             "0.12",
		"round(qty, 28)":              "2.5",
		"number(groupby.vcpus) * 2":   "8",
		"number(metadata.nothing, 7)": "7",
		"hour(begin) + weekday(begin) * 100 + day(begin) * 1000": "1723",
		"month(begin) + year(begin)":                             "2029",
		".5 + 1.":                                                "1.5",
		"12345678901234567890.1234567890123456789012345678":      "12345678901234567890.1234567890123456789012345678",
	} {
		t.Run(text, func(t *testing.T) {
			e, err := expr.Number(text)
			if err != nil {
				t.Fatal(err)
			}
			got, err := e.Number(env())
			if err != nil || !got.Equal(dec(want)) {
				t.Errorf("%s, %v, want %s", got, err, want)
			}
		})
	}
}

func TestConditions(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`groupby.flavor == "m1.tiny"`:                                              true,
		`metadata.flavor == "m1.tiny"`:                                             true, // the same attribute
		`metadata["os-type"] in ["Linux", "BSD"]`:                                  true,
		`metadata["os-type"] not in ["Linux", "BSD"]`:                              false,
		`groupby.flavor startsWith "m1." && qty >= 2.5`:                            true,
		`groupby.flavor endsWith ".tiny" and not (qty == 0)`:                       true,
		`groupby.flavor contains "large" or unit != "hour"`:                        false,
		`has(metadata.empty) && metadata.empty == ""`:                              true,
		`has(metadata.nothing)`:                                                    false,
		`metadata.nothing == ""`:                                                   true,
		`lower(groupby["os-type"]) == "linux"`:                                     true,
		`upper("a") == "A"`:                                                        true,
		`scope == "alpha" && metric == "instance"`:                                 true,
		`begin >= time("2026-03-01") && begin < time("2026-03-02T00:00:00+01:00")`: false,
		`begin < time("2026-03-02")`:                                               true,
		`1 < qty < 3`:                                                              true,
		`qty in [1, 2.5]`:                                                          true,
		`qty in []`:                                                                false,
		`true != (qty > 3)`:                                                        true,
		`qty == 2.50`:                                                              true,
		`false && number("x") > 1`:                                                 false, // not looked at
	} {
		t.Run(text, func(t *testing.T) {
			e, err := expr.Condition(text)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := e.Condition(env()); err != nil || got != want {
				t.Errorf("%v, %v, want %v", got, err, want)
			}
		})
	}
}

func TestMistakesHaveAPlace(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ text, want string }{
		"nothing":                       {"", "1:1: unexpected token EOF"},
		"a bracket left open":           {"(qty", "1:4: unexpected token EOF"},
		"a name nobody knows":           {"qty *\n cost", "2:2: unknown name cost"},
		"a text as a number":            {"groupby.vcpus * 2", "1:9: expected a number, this is a text: use number()"},
		"a text against a number":       {"groupby.vcpus > 2 ? 1 : 0", "1:15: a text cannot be compared with a number: use number()"},
		"the order of texts":            {`unit < "b" ? 1 : 0`, "can only be compared by == and !="},
		"a condition as a price":        {"qty > 1", "expected a number, this is true or false"},
		"two kinds of answer":           {`qty > 1 ? 1 : "a"`, "one side gives a number, the other a text"},
		"a function off the list":       {`readFile("/etc/passwd")`, "unknown function readFile"},
		"a built-in off the list":       {`len(unit)`, "unknown function len"},
		"the clock":                     {`now()`, "unknown function now"},
		"a loop":                        {`sum([1,2], # * 2)`, "unknown function sum"},
		"a variable of one's own":       {"let x = 1; x", "this is not part of the language"},
		"a sequence":                    {"1; 2", "this is not part of the language"},
		"a map":                         {"{a: 1}", "this is not part of the language"},
		"a method":                      {"unit.length()", "values have no methods"},
		"a slice":                       {"unit[1:2]", "this is not part of the language"},
		"an environment":                {"$env", "unknown name $env"},
		"power":                         {"qty ** 1000000", "operator ** is not part of the language"},
		"a range":                       {"1..1000000000", "operator .. is not part of the language"},
		"a regular expression":          {`unit matches "(a+)+$"`, "operator matches is not part of the language"},
		"an exponent":                   {"1e9", "write plain decimals"},
		"hexadecimal":                   {"0x10", "write plain decimals"},
		"underscores":                   {"1_000", "write plain decimals"},
		"29 decimals":                   {"0.00000000000000000000000000001", "write plain decimals"},
		"an attribute without a name":   {"groupby", "name an attribute"},
		"an attribute by formula":       {"groupby[unit]", "write the attribute's name"},
		"a list that is not fixed":      {"qty in [price]", "a list holds fixed values"},
		"decimals by formula":           {"round(qty, qty)", "a whole number from 0 to 28"},
		"too few values":                {"round(qty)", "round takes 2 to 2 values, found 1"},
		"a time that is none":           {`begin > time("soon") ? 1 : 2`, "expected a time such as"},
		"too many terms":                {strings.Repeat("1+", 400) + "1", "nodes"},
		"too long":                      {strings.Repeat(" ", 4097), "4097 characters"},
		"brackets without end":          {strings.Repeat("(", 4000), "too complex"},
		"signs without end":             {strings.Repeat("-", 4000) + "1", "nodes"},
		"broken text":                   {"\xff", "not valid UTF-8"},
		"the place counts characters":   {`"ßß" == 1 ? 1 : 0`, "1:6: a text cannot be compared"},
		"has of something else":         {"has(unit) ? 1 : 0", "has takes an attribute"},
		"a text where a truth is meant": {`unit ? 1 : 2`, "expected true or false"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := expr.Number(tt.text)
			var mistake *expr.Error
			if !errors.As(err, &mistake) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %s", err, tt.want)
			}
		})
	}
}

func TestPointsWithoutAnAnswerAreRejected(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"number(groupby.flavor)":              `number("m1.tiny"): not a number`,
		`number("1e999")`:                     "not a number",
		"1 / (qty - 2.5)":                     "division by zero",
		strings.Repeat("qty *", 399) + " qty": "more than 300 digits",
	} {
		e, err := expr.Number(text)
		if err != nil {
			if !strings.Contains(err.Error(), "nodes") {
				t.Fatal(err)
			}
			continue
		}
		_, err = e.Number(env())
		var r *expr.Reject
		if !errors.As(err, &r) || !strings.Contains(r.Reason, want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func TestWhatFolds(t *testing.T) {
	t.Parallel()
	for text, why := range map[string]string{
		"price * 0.8":                               "",
		"qty * 0.1 + price / 1024":                  "",
		"max(0, qty - 100) * 0.02":                  "",
		`scope == "a" ? price : 0`:                  "",
		`begin >= time("2026-03-01") ? 1 : 2`:       "",
		"number(groupby.vcpus) * qty":               "",
		"floor(number(groupby.vcpus)) * qty":        "",
		"qty * qty":                                 "not linear",
		"price * qty":                               "not linear",
		"1 / qty":                                   "not linear",
		"ceil(qty)":                                 "not linear",
		"qty * qty > 4 ? 1 : 0":                     "not linear",
		"hour(begin) < 6 ? price / 2 : price":       "time",
		`begin > (qty > 1 ? begin : begin) ? 1 : 2`: "time",
		`scope startsWith "a" ? 1 : 2`:              "scope",
		`scope == groupby.owner ? 1 : 2`:            "scope",
		`lower(scope) == "a" ? 1 : 2`:               "scope",
		`(qty > 1 ? scope : "b") == "b" ? 1 : 2`:    "scope",
		`begin > (qty > 1 ? time("2026-01-01") : time("2026-02-01")) ? 1 : 2`: "time",
	} {
		e, err := expr.Number(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		folds, got := e.Folds()
		if folds != (why == "") || !strings.Contains(got, why) {
			t.Errorf("%s: folds %v, %q, want %q", text, folds, got, why)
		}
	}
}

// drawNumber draws the text of an expression that may fold.
func drawNumber(t *rapid.T, depth int) string {
	if depth == 0 {
		return rapid.SampledFrom([]string{"qty", "price", "0", "1", "2.5", "0.0000001", "100", "3", "7.25"}).Draw(t, "leaf")
	}
	x := func() string { return drawNumber(t, depth-1) }
	switch rapid.IntRange(0, 8).Draw(t, "node") {
	case 0:
		return fmt.Sprintf("(%s + %s)", x(), x())
	case 1:
		return fmt.Sprintf("(%s - %s)", x(), x())
	case 2:
		return fmt.Sprintf("(%s * %s)", x(), drawNumber(t, 0))
	case 3:
		return fmt.Sprintf("(%s / %s)", x(), rapid.SampledFrom([]string{"2", "-0.8", "1024", "3", "0"}).Draw(t, "divisor"))
	case 4:
		return fmt.Sprintf("max(%s, %s)", x(), x())
	case 5:
		return fmt.Sprintf("min(%s, %s, %s)", x(), x(), drawNumber(t, 0))
	case 6:
		return fmt.Sprintf("abs(%s)", x())
	case 7:
		return fmt.Sprintf("-%s", x())
	default:
		op := rapid.SampledFrom([]string{"<", "<=", ">", ">=", "==", "!="}).Draw(t, "operator")
		return fmt.Sprintf("(%s %s %s ? %s : %s)", drawNumber(t, depth-1), op, x(), x(), x())
	}
}

func raw(q *big.Int) decimal.Decimal { return decimal.NewFromBigInt(q, -18) }

func TestFoldedPiecesGiveWhatEachPointGives(t *testing.T) {
	t.Parallel()
	folded, pieces, points := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		for range 20 {
			text := drawNumber(t, rapid.IntRange(1, 4).Draw(t, "depth"))
			e, err := expr.Number(text)
			if err != nil {
				continue // too long
			}
			price := expr.Line{
				A: rapid.SampledFrom([]decimal.Decimal{{}, dec("0.1"), dec("-3")}).Draw(t, "a"),
				B: rapid.SampledFrom([]decimal.Decimal{{}, dec("2"), dec("0.000000001")}).Draw(t, "b"),
			}
			over := expr.Stretch{From: big.NewInt(-5e18)}
			parts, err := e.Fold(env(), price, over)
			if err != nil {
				continue
			}
			folded++
			pieces += len(parts)
			from := over.From
			for _, p := range parts {
				if p.From.Cmp(from) != 0 {
					t.Fatalf("%s: a piece begins at %s, the one before ended at %s", text, p.From, from)
				}
				from = p.To
				candidates := []*big.Int{p.From, new(big.Int).Add(p.From, big.NewInt(1))}
				if p.To != nil {
					candidates = append(candidates, new(big.Int).Sub(p.To, big.NewInt(1)))
				} else {
					candidates = append(candidates, new(big.Int).Add(p.From, big.NewInt(rapid.Int64().Draw(t, "far")&(1<<62-1))))
				}
				for _, q := range candidates {
					if p.To != nil && q.Cmp(p.To) >= 0 {
						continue
					}
					points++
					at := env()
					at.Qty = raw(q)
					at.Price = price.A.Mul(at.Qty).Add(price.B)
					want, err := e.Number(at)
					if (err != nil) != (p.Reject != "") || err != nil && err.Error() != p.Reject {
						t.Fatalf("%s at %s: folded rejects %q, the point %v", text, at.Qty, p.Reject, err)
					}
					if got := p.Line.A.Mul(at.Qty).Add(p.Line.B); err == nil && !got.Equal(want) {
						t.Fatalf("%s at %s: folded %s, want %s", text, at.Qty, got, want)
					}
				}
			}
			if from != nil {
				t.Fatalf("%s: the last piece ends at %s", text, from)
			}
		}
	})
	t.Logf("%d expressions folded into %d pieces, %d points", folded, pieces, points)
}

func TestAttributeNumbers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"4": "4", "+4": "4", "-4.50": "-4.5", ".5": "0.5", "5.": "5", "1e3": "1000", "1E-3": "0.001", " 4\t": "4",
		"\u00a04\u2003": "4", "007": "7", "0e999999999999": "0", "-0": "0",
	} {
		d, exact, ok := expr.AttributeNumber(text)
		if !ok || !exact || !d.Equal(dec(want)) {
			t.Errorf("%q: %s, %v, %v, want %s", text, d, exact, ok, want)
		}
	}
	for _, text := range []string{"", " ", ".", "-", "abc", "4GB", "1,5", "NaN", "0x10", "None", "1_000", "٣", "Infinity", "1e", "1 2", "--1", "1e1.5"} {
		if d, _, ok := expr.AttributeNumber(text); ok {
			t.Errorf("%q: %s, want no number", text, d)
		}
	}
	for text, sign := range map[string]int{"1e999999999": 1, "-1e99999999999999999999999": -1} {
		d, exact, ok := expr.AttributeNumber(text)
		if !ok || exact || d.Abs().LessThan(dec("1e30")) || d.Sign() != sign {
			t.Errorf("%q: %s, %v, %v", text, d, exact, ok)
		}
	}
	d, exact, ok := expr.AttributeNumber("1e-99999999999999999999999")
	if !ok || exact || d.Sign() != 1 || d.GreaterThan(dec("1e-30")) {
		t.Errorf("%s, %v, %v", d, exact, ok)
	}
	long := "1." + strings.Repeat("0", 500) + "1"
	if d, _, ok := expr.AttributeNumber(long); !ok || !d.GreaterThan(dec("1")) {
		t.Errorf("a long number is %s", d)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"price * 0.8", "qty > 10 ? max(0, qty - 100) * 0.02 : price", `groupby.flavor in ["a", "b"] && has(metadata.x)`,
		`begin >= time("2026-03-01") || hour(begin) < 6`, "1 / 3 + number(groupby.vcpus, 1)", "((((", "let x = 1; x", "1..5", "a?.b",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if e, err := expr.Condition(text); err == nil {
			_, _ = e.Condition(env())
			_, _ = e.Fold(env(), expr.Line{A: dec("0.1")}, expr.Stretch{})
		}
		e, err := expr.Number(text)
		if err != nil {
			var mistake *expr.Error
			if !errors.As(err, &mistake) {
				t.Fatalf("%q: %v has no place", text, err)
			}
			return
		}
		want, err1 := e.Number(env())
		at := env()
		parts, err := e.Fold(at, expr.Line{B: at.Price}, expr.Stretch{})
		if err != nil {
			return
		}
		q := big.NewInt(2_500_000_000_000_000_000)
		for _, p := range parts {
			if (p.From == nil || p.From.Cmp(q) <= 0) && (p.To == nil || q.Cmp(p.To) < 0) {
				if (err1 == nil) != (p.Reject == "") {
					t.Fatalf("%q: folded rejects %q, the point %v", text, p.Reject, err1)
				}
				if got := p.Line.A.Mul(at.Qty).Add(p.Line.B); err1 == nil && !got.Equal(want) {
					t.Fatalf("%q: folded %s, want %s", text, got, want)
				}
			}
		}
	})
}
