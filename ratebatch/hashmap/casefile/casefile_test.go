package casefile_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ratebatch/ratebatch/ratebatch/hashmap"
	"github.com/ratebatch/ratebatch/ratebatch/hashmap/casefile"
	"github.com/ratebatch/ratebatch/ratebatch/plan"
)

const vectors = "../../../fixtures/vectors/"

func TestRecordedPrices(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]casefile.Summary{
		"hashmap.jsonl":          {Cases: 704, Points: 3730, Passed: 3730},
		"hashmap-upstream.jsonl": {Cases: 19, Points: 76, Passed: 76},
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			f, err := os.Open(filepath.Join(vectors, file))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			var report strings.Builder
			got, err := casefile.Run(t.Context(), file, casefile.Read(file, f), &report, casefile.Go{}, casefile.Folded{})
			if err != nil {
				t.Fatal(err)
			}
			if got != want {
				t.Errorf("%s, want %s\n%s", got, want, report.String())
			}
			t.Log(got)
		})
	}
}

// Cases of rules imported from CloudKitty must price as the rules did there.
// Only costs with a binary tail differ, on purpose.
func TestImportedRulesPriceAlike(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"hashmap.jsonl", "hashmap-upstream.jsonl"} {
		data, err := os.ReadFile(filepath.Join(vectors, file))
		if err != nil {
			t.Fatal(err)
		}
		points, tails := 0, 0
		lines := strings.Split(strings.TrimSpace(string(data)), "\n")
		for c, err := range casefile.Read(file, strings.NewReader(string(data))) {
			if err != nil {
				t.Fatal(err)
			}
			p, notes, err := plan.FromCloudKitty(asAnswers(t, lines[c.Line-1]))
			if err != nil {
				if len(c.Rules.Services) == 0 {
					continue
				}
				t.Fatalf("%s: %v", c.Name, err)
			}
			tail := false
			for _, n := range notes {
				tail = tail || strings.Contains(n.Text, "binary float")
			}
			if tail {
				tails++
				continue
			}
			if again, err := plan.Parse("again.yaml", p.YAML()); err != nil || again.Digest() != p.Digest() {
				t.Fatalf("%s: reads back differently: %v\n%s", c.Name, err, p.YAML())
			}
			e, err := hashmap.Compile(p, hashmap.Options{})
			if err != nil {
				t.Fatalf("%s: %v", c.Name, err)
			}
			for i := range c.Points {
				r := e.Price(&c.Points[i].Point)
				a := casefile.Answer{Price: r.Price, Rule: r.Rule, Rejected: r.Reason}
				if !casefile.Right(c, &c.Points[i], a) {
					t.Errorf("%s, point %d: %s, want %s\n%s", c.Name, i+1, a, c.Points[i].Want, p.YAML())
				}
				points++
			}
		}
		t.Logf("%s: %d points alike, %d cases have binary tails", file, points, tails)
	}
}

// asAnswers writes a case's rules as CloudKitty's API answers them.
func asAnswers(t *testing.T, line string) []byte {
	t.Helper()
	var c struct {
		Rules struct {
			Services, Groups     []string
			Fields               []struct{ Service, Name string }
			Mappings, Thresholds []map[string]any
		}
	}
	if err := json.Unmarshal([]byte(line), &c); err != nil {
		t.Fatal(err)
	}
	type object map[string]any
	out := map[string][]object{}
	for _, s := range c.Rules.Services {
		out["services"] = append(out["services"], object{"service_id": "s:" + s, "name": s})
	}
	for _, g := range c.Rules.Groups {
		out["groups"] = append(out["groups"], object{"group_id": "g:" + g, "name": g})
	}
	for _, f := range c.Rules.Fields {
		out["fields"] = append(out["fields"], object{"field_id": "f:" + f.Service + "/" + f.Name, "service_id": "s:" + f.Service, "name": f.Name})
	}
	for kind, list := range map[string][]map[string]any{"mapping": c.Rules.Mappings, "threshold": c.Rules.Thresholds} {
		for i, r := range list {
			o := object{kind + "_id": fmt.Sprintf("%s-%d", kind, i), "service_id": nil, "field_id": nil, "group_id": nil, "tenant_id": r["tenant"]}
			for _, key := range []string{"cost", "level", "type", "value", "start", "end"} {
				if v, ok := r[key]; ok {
					o[key] = v
				}
			}
			if r["deleted"] == true {
				o["deleted"] = "2026-01-01T00:00:00"
			}
			if f, ok := r["field"].(string); ok {
				o["field_id"] = fmt.Sprintf("f:%s/%s", r["service"], f)
			} else {
				o["service_id"] = fmt.Sprintf("s:%s", r["service"])
			}
			if g, ok := r["group"].(string); ok {
				o["group_id"] = "g:" + g
				out["groups"] = append(out["groups"], object{"group_id": "g:" + g, "name": g})
			}
			out[kind+"s"] = append(out[kind+"s"], o)
		}
	}
	data, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

const oneCase = `{"name": "a", "period_begin": "2026-01-01", "rules": {"services": ["vm"], "mappings": [{"service": "vm", "cost": 0.1, "type": "flat"}]}, "points": [{"metric": "vm", "scope_id": "p", "qty": 3, "price": "0.3"}]}`

func TestReport(t *testing.T) {
	t.Parallel()
	wrong := strings.Replace(oneCase, `"0.3"`, `"0.31"`, 1)
	rejected := strings.Replace(oneCase, `"price": "0.3"`, `"error": "InvalidOperation"`, 1)
	var report strings.Builder
	sum, err := casefile.Run(t.Context(), "f", casefile.Read("f", strings.NewReader(oneCase+"\n\n"+wrong+"\n"+rejected)), &report, casefile.Go{}, casefile.Folded{})
	if err != nil {
		t.Fatal(err)
	}
	const want = `f:3: case a, point 1: 3 of vm: want 0.31; evaluator: 0.3 by m1; folded: 0.3 by m1
f:4: case a, point 1: 3 of vm: want rejected (InvalidOperation); evaluator: 0.3 by m1; folded: 0.3 by m1
`
	if report.String() != want {
		t.Errorf("%s\nwant\n%s", report.String(), want)
	}
	if got := sum.String(); got != "3 cases, 3 points: 1 passed, 2 failed" {
		t.Error(got)
	}
}

func TestMistakesInCases(t *testing.T) {
	t.Parallel()
	replace := func(old, new string) string {
		if !strings.Contains(oneCase, old) {
			t.Fatalf("no %s", old)
		}
		return strings.Replace(oneCase, old, new, 1)
	}
	for name, tt := range map[string]struct{ text, want string }{
		"no JSON":               {"{", "f:1: unexpected EOF"},
		"two values":            {oneCase + oneCase, "f:1: more than one JSON value in a line"},
		"an unknown key":        {replace(`"type"`, `"tpye"`), `unknown field "tpye"`},
		"a cost that is none":   {replace("0.1", `"x"`), `mapping 1: "x" is not a decimal number`},
		"an unlisted service":   {replace(`"vm", "cost"`, `"wm", "cost"`), `service "wm" is not listed`},
		"an unlisted field":     {replace(`"cost"`, `"field": "f", "value": "v", "cost"`), `field "f" of service "vm" is not listed`},
		"a type that is none":   {replace("flat", "percent"), `type "percent": expected flat or rate`},
		"no answer":             {replace(`, "price": "0.3"`, ""), "point 1: a point has a price or an error"},
		"a quantity too long":   {replace(`"qty": 3`, `"qty": "1e999"`), "qty: 1e999 has"},
		"a quantity in words":   {replace(`"qty": 3`, `"qty": true`), "expected a number, found true"},
		"a time that is none":   {replace("2026-01-01", "now"), `period_begin "now" is not a time`},
		"an attribute in parts": {replace(`"qty"`, `"metadata": {"a": [1]}, "qty"`), "metadata.a: expected a text"},
	} {
		t.Run(name, func(t *testing.T) {
			var report strings.Builder
			_, err := casefile.Run(t.Context(), "f", casefile.Read("f", strings.NewReader(tt.text)), &report, casefile.Go{})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %s", err, tt.want)
			}
		})
	}
}

func TestAttributesBecomeTextAsInCloudKitty(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		`"a"`: "a", `""`: "", "1": "1", "-0": "0", "1.0": "1.0", "1.50": "1.5", "0.1": "0.1", "1e3": "1000.0", "1e16": "1e+16", "1e15": "1000000000000000.0",
		"0.0001": "0.0001", "0.00001": "1e-05", "1.5e-7": "1.5e-07", "1e100": "1e+100", "true": "True", "false": "False", "null": "None",
		"12345678901234567890123": "12345678901234567890123",
	} {
		text := strings.Replace(oneCase, `"qty"`, `"metadata": {"a": `+value+`}, "qty"`, 1)
		for c, err := range casefile.Read("f", strings.NewReader(text)) {
			if err != nil {
				t.Errorf("%s: %v", value, err)
				continue
			}
			if got := c.Points[0].Attributes["a"]; got != want {
				t.Errorf("%s: %q, want %q", value, got, want)
			}
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(oneCase)
	data, err := os.ReadFile(filepath.Join(vectors, "hashmap-upstream.jsonl"))
	if err != nil {
		f.Fatal(err)
	}
	for i, line := range strings.Split(string(data), "\n") {
		if i < 5 {
			f.Add(line)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		for c, err := range casefile.Read("fuzz", strings.NewReader(text)) {
			if err != nil {
				continue
			}
			a, err := casefile.Go{}.Price(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			b, err := casefile.Folded{}.Price(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			for i := range a {
				if !a[i].Price.Equal(b[i].Price) && a[i].Rejected == "" || (a[i].Rejected == "") != (b[i].Rejected == "") {
					t.Fatalf("point %d: %s, folded %s", i+1, a[i], b[i])
				}
			}
		}
	})
}
