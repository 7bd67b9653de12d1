package metric_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"strings"
	"testing"

	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch/metric"
)

// vector is a line of fixtures/vectors/convert.jsonl; its README has the rules.
type vector struct {
	Name, Collector, Raw, Mutate, Qty, Error string
	Factor, Offset                           json.RawMessage
	MutateMap                                [][2]json.RawMessage `json:"mutate_map"`
}

// yaml writes the case as an operator would.
func (v vector) yaml() string {
	var b strings.Builder
	fmt.Fprintf(&b, "metrics:\n  m:\n    unit: x\n    table: t\n    time: ts\n    resource: id\n    quantity: sum\n    value: v\n    mutate: %s\n", v.Mutate)
	for key, value := range map[string]json.RawMessage{"factor": v.Factor, "offset": v.Offset} {
		if string(value) != "null" {
			fmt.Fprintf(&b, "    %s: %s\n", key, value)
		}
	}
	for i, e := range v.MutateMap {
		if i == 0 {
			b.WriteString("    mutate_map:\n")
		}
		fmt.Fprintf(&b, "      %s: %s\n", e[0], e[1])
	}
	return b.String()
}

func vectors(tb testing.TB) []vector {
	tb.Helper()
	data, err := os.ReadFile("../../fixtures/vectors/convert.jsonl")
	if err != nil {
		tb.Fatal(err)
	}
	var out []vector
	for line := range bytes.Lines(data) {
		var v vector
		if err := json.Unmarshal(line, &v); err != nil {
			tb.Fatal(err)
		}
		out = append(out, v)
	}
	return out
}

func TestConvertVectors(t *testing.T) {
	t.Parallel()
	cases := vectors(t)
	noise := 0
	for i, v := range cases {
		fail := func(format string, args ...any) {
			t.Helper()
			t.Errorf("case %d %s %s %s: %s", i+1, v.Collector, v.Name, v.Raw, fmt.Sprintf(format, args...))
		}
		set, err := metric.Parse("metrics.yaml", []byte(v.yaml()))
		if v.Name == "map_string_keys_never_match" {
			// CloudKitty takes such a map and bills nothing; we refuse it.
			if err == nil || !strings.Contains(err.Error(), "would never match") {
				fail("a map with keys in quotes gives %v", err)
			}
			continue
		}
		if err != nil {
			fail("%v", err)
			continue
		}
		got, err := set.Metrics[0].ConvertText(v.Raw)
		if strings.Contains("naninf-inf+inf", strings.ToLower(v.Raw)) {
			// NaN and infinity cannot be in an exact column; all of them are refused.
			if err == nil {
				fail("gives %s", got)
			}
			continue
		}
		want, mutates := decimal.RequireFromString(v.Qty), strings.HasSuffix(v.Mutate, "NUMBOOL")
		if want.Abs().GreaterThanOrEqual(decimal.New(1, 20)) && !mutates {
			if err == nil {
				fail("gives %s, which Decimal(38,18) cannot hold", got)
			}
			continue
		}
		if err != nil {
			fail("%v", err)
			continue
		}
		switch {
		case got.Equal(want):
		case v.Mutate == "CEIL" || v.Mutate == "FLOOR" || v.Mutate == "MAP":
			if !floatPushed(t, set.Metrics[0], v) {
				fail("gives %s, CloudKitty %s", got, want)
			}
			noise++
		default:
			limit := decimal.Max(want.Abs().Shift(-8), decimal.New(1, -18)) // a relative 1e-8
			if got.Sub(want).Abs().GreaterThan(limit) {
				fail("gives %s, CloudKitty %s", got, want)
			}
		}
	}
	t.Logf("%d cases, in %d of them CloudKitty's float or 9-digit arithmetic pushed CEIL, FLOOR or MAP to another answer", len(cases), noise)
	if len(cases) != 568 {
		t.Errorf("%d cases", len(cases))
	}
}

// floatPushed says whether CloudKitty's answer follows from arithmetic that is
// off by a relative 1e-8 at most: its Prometheus collector keeps 9 digits, its
// Gnocchi collector binary floats.
func floatPushed(t *testing.T, m *metric.Metric, v vector) bool {
	t.Helper()
	raw, ok := new(big.Rat).SetString(v.Raw)
	if !ok {
		t.Fatalf("raw %s", v.Raw)
	}
	exact := *m
	exact.Mutate, exact.Map = metric.None, nil
	x, err := exact.Convert(raw)
	if err != nil {
		t.Fatal(err)
	}
	slack := decimal.Max(x.Abs().Shift(-8), decimal.New(1, -17))
	want := decimal.RequireFromString(v.Qty)
	for _, near := range []decimal.Decimal{x.Sub(slack), x.Add(slack)} {
		switch metric.Mutate(v.Mutate) {
		case metric.Floor:
			if near.Floor().Equal(want) {
				return true
			}
		case metric.Ceil:
			if near.Ceil().Equal(want) {
				return true
			}
		case metric.Map:
			return want.IsZero() // the float missed a key that we hit
		case metric.None, metric.NumBool, metric.NotNumBool:
		}
	}
	// 9 digits of a number above 10^9 are themselves whole: FLOOR and CEIL change nothing.
	return x.Abs().GreaterThan(decimal.New(1, 8)) && x.Sub(want).Abs().LessThanOrEqual(slack)
}

func TestConvert(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ keys, raw, want string }{
		"a tie goes to the even digit below":       {"factor: 1/2000000000000000000", "1", "0"},
		"a tie goes to the even digit above":       {"factor: 1/2000000000000000000", "3", "0.000000000000000002"},
		"a negative tie goes to the even digit":    {"factor: 1/2000000000000000000", "-3", "-0.000000000000000002"},
		"just above a tie goes up":                 {"factor: 1/2000000000000000000", "1.000000001", "0.000000000000000001"},
		"one rounding, not two":                    {"factor: 1/3\n    offset: 2/3", "1", "1"},
		"CEIL of an exact quotient":                {"factor: 1/1000\n    mutate: CEIL", "1000", "1"},
		"CEIL of 30 × 0.1":                         {"factor: 0.1\n    mutate: CEIL", "30", "3"},
		"CEIL sees what rounding would hide":       {"factor: 1/1000000000000000000\n    mutate: CEIL", "1/1000", "1"},
		"FLOOR of a negative":                      {"mutate: FLOOR", "-1.5", "-2"},
		"CEIL of a negative":                       {"mutate: CEIL", "-1.5", "-1"},
		"NUMBOOL sees what rounding would hide":    {"factor: 1/1000000000000000000\n    mutate: NUMBOOL", "1/1000", "1"},
		"NUMBOOL after the offset":                 {"offset: -1\n    mutate: NUMBOOL", "1", "0"},
		"NOTNUMBOOL":                               {"mutate: NOTNUMBOOL", "0", "1"},
		"MAP matches the exact value":              {"factor: 0.1\n    mutate: MAP\n    mutate_map: {0.1: 7, 0.3: 5}", "1", "7"},
		"MAP without a match is 0":                 {"mutate: MAP\n    mutate_map: {1: 7}", "1.000000000000000000001", "0"},
		"the greatest quantity":                    {"", "99999999999999999999.999999999999999999", "99999999999999999999.999999999999999999"},
		"a factor in kibibytes":                    {"factor: 1/1048576", "5368709120", "5120"},
		"a factor with an exponent":                {"factor: 1e-3", "5", "0.005"},
		"offset after factor":                      {"factor: 2\n    offset: -32", "100", "168"},
		"FLOOR of a large number keeps its digits": {"mutate: FLOOR", "12345678901234567890.5", "12345678901234567890"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set := parse(t, "metrics:\n  m:\n    unit: x\n    table: t\n    time: ts\n    resource: id\n    quantity: sum\n    value: v\n    "+tt.keys+"\n")
			got, err := set.Metrics[0].ConvertText(tt.raw)
			if err != nil {
				t.Fatal(err)
			}
			if !got.Equal(decimal.RequireFromString(tt.want)) {
				t.Errorf("Convert(%s) = %s, want %s", tt.raw, got, tt.want)
			}
		})
	}
}

func TestConvertRefuses(t *testing.T) {
	t.Parallel()
	m := parse(t, "metrics: {m: {unit: x, table: t, time: ts, resource: id, quantity: sum, value: v}}").Metrics[0]
	for name, raw := range map[string]string{
		"one more than Decimal(38,18) holds": "100000000000000000000",
		"what rounds up to too much":         "99999999999999999999.9999999999999999995",
		"NaN":                                "NaN",
		"text":                               "many",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, err := m.ConvertText(raw); err == nil {
				t.Errorf("Convert(%s) = %s", raw, got)
			}
		})
	}
}
