package plan_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/shopspring/decimal"

	"github.com/ratebatch/ratebatch/ratebatch/plan"
)

func example(t testing.TB) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func parse(t testing.TB, text string) *plan.Plan {
	t.Helper()
	p, err := plan.Parse("plan.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestParseKeepsOrderAndDigits(t *testing.T) {
	t.Parallel()
	p := parse(t, string(example(t)))
	var got []string
	for r := range p.Rules() {
		got = append(got, r.ID+" "+r.Value+" "+r.Cost.String())
	}
	want := []string{
		"t1  0.000000000931322574615478", "m1 m1.tiny 0.01", "m2 m1.small 0.02", "m3 m1.small 0.018", "m4 m1.tiny 0.008", "m5 1.0 0.5",
		"t2  0.95", "traffic  0.000000000093132257461",
	}
	if !slices.Equal(got, want) {
		t.Errorf("rules %q,\nwant  %q", got, want)
	}
	if found := p.Validate(plan.Metrics{"instance": nil, "network.bytes": nil}); len(found) > 0 {
		t.Errorf("the example has findings:\n%s", found)
	}
	if got := p.PerPoint(); len(got) != 1 || !strings.Contains(got[0], "expression e1, when") {
		t.Errorf("per point: %q", got)
	}
}

func TestMistakesOfFormHaveLineAndColumn(t *testing.T) {
	t.Parallel()
	service := func(rule string) string { return "services:\n  - name: vm\n    mappings:\n      - {" + rule + "}\n" }
	for name, tt := range map[string]struct{ text, want string }{
		"nothing at all":                  {"", "1:1: the plan is empty"},
		"no YAML":                         {"a: [1", "1:4: sequence end token ']' not found"},
		"a list instead of keys":          {"- a", "1:1: plan: expected keys and values, found a list"},
		"two documents":                   {"version: 1\n---\nversion: 1\n", "3:1: a second YAML document"},
		"a misspelt key":                  {"curency: EUR", `1:1: plan: unknown key "curency": did you mean "currency"?`},
		"a key twice":                     {"currency: EUR\ncurrency: USD", `2:1: plan: key "currency" is already given at line 1`},
		"another version":                 {"version: 2", "1:10: version: expected a whole number from 1 to 1"},
		"a currency that is none":         {"currency: euro", "1:11: currency: expected an ISO 4217 code"},
		"an anchor":                       {"groups: &g [a]", "1:9: groups: expected a list, found an anchor or alias"},
		"a merge":                         {"<<: {version: 1}", "1:1: plan: an anchor or alias (not used in plans) cannot be a key"},
		"a tag":                           {"currency: !!str EUR", "1:11: currency: expected a text, found a YAML tag"},
		"a service without a name":        {"services:\n  - mappings: []", `2:5: service without a name: "name" is missing`},
		"a rule without a cost":           {service("id: x"), `4:10: service vm, mapping 1: "cost" is missing`},
		"a cost that is no number":        {service("cost: cheap"), `4:16: service vm, mapping 1, cost: "cheap" is not a decimal number`},
		"a cost in hexadecimal":           {service("cost: 0x10"), `"0x10" is not a decimal number`},
		"a cost with underscores":         {service("cost: 1_000"), `"1_000" is not a decimal number`},
		"a cost without end":              {service("cost: .inf"), `expected a decimal number, found ".inf"`},
		"an empty cost":                   {service(`cost: ""`), `"" is not a decimal number`},
		"29 decimals":                     {service("cost: 0.00000000000000000000000000001"), "has 29 digits after the point: at most 28 are exact"},
		"13 digits":                       {service("cost: 1234567890123"), "has 13 digits before the point: at most 12 fit"},
		"a huge exponent":                 {service("cost: 1e999"), "digits before the point"},
		"an exponent nobody could store":  {service("cost: 1e999999999"), "is not a decimal number"},
		"a type that is none":             {service("cost: 1, type: percent"), `expected flat or rate, found "percent"`},
		"a value on a service":            {service("cost: 1, value: a"), "a mapping of a service has no value: put it under a field"},
		"a time that is none":             {service("cost: 1, start: soon"), `start: expected a time such as 2026-03-01`},
		"a day that does not exist":       {service("cost: 1, end: 2026-02-30"), `end: expected a time`},
		"an id with a plus":               {service("cost: 1, id: a+b"), `id: "a+b": up to 64 letters`},
		"a truth as a text":               {service("cost: 1, group: true"), "group: write true in quotes if this text is meant"},
		"a control character":             {service(`cost: 1, group: "a\u0007"`), "holds a control or broken character"},
		"a module that is none":           {"modules: [{module: pyscripts}]", `1:20: module: expected hashmap, expressions or none, found "pyscripts"`},
		"a group twice":                   {"groups: [a, a]", `1:13: group "a" is listed twice`},
		"a field mapping without a value": {"services: [{name: vm, fields: [{name: f, mappings: [{cost: 1}]}]}]", `"value" is missing`},
		"brackets without end":            {strings.Repeat("[", 1000), "nested"},
		"dashes without end":              {strings.Repeat("- ", 2_000_000), "line 1 nests lists or keys more than 64 deep"},
		"keys without end":                {"currency: EUR\n" + strings.Repeat("a: ", 1000), "line 2 nests lists or keys more than 64 deep"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := plan.Parse("plan.yaml", []byte(tt.text))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v,\nwant %s", err, tt.want)
			}
		})
	}
}

func TestAllMistakesAreReportedTogether(t *testing.T) {
	t.Parallel()
	_, found := plan.Check("plan.yaml", []byte("currency: euro\nservices:\n  - name: vm\n    mappings:\n      - {cost: x}\n      - {cots: 1}\n      - {cost: 1, group: g}\nskip: qty >"), plan.Metrics{"disk": nil})
	want := []string{
		`plan.yaml:1:11: currency: expected an ISO 4217 code such as EUR, found "euro"`,
		`plan.yaml:3:5: service vm: no such metric: known are disk`,
		`plan.yaml:5:16: service vm, mapping 1, cost: "x" is not a decimal number`,
		`plan.yaml:6:10: service vm, mapping 2: unknown key "cots": did you mean "cost"?`,
		`plan.yaml:6:10: service vm, mapping 2: "cost" is missing`,
		`plan.yaml:7:10: service vm, mapping m3, group g: group "g" is not listed under groups`,
		`plan.yaml:8:`,
	}
	for i, f := range found.Mistakes() {
		if i >= len(want) || !strings.HasPrefix(f.String(), want[i]) {
			t.Errorf("finding %d is %s, want %q", i, f, want[min(i, len(want)-1)])
		}
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	vm := func(rules string) string { return "currency: EUR\ngroups: [g]\nservices:\n  - name: vm\n" + rules }
	for name, tt := range map[string]struct{ text, want string }{
		"a sound plan":                      {vm("    mappings: [{cost: 1, group: g}]"), ""},
		"a duplicate":                       {vm("    mappings:\n      - {cost: 1, group: g}\n      - {cost: 1.0, group: g}"), "7:10: service vm, mapping m2, group g: a duplicate of m1 at line 6"},
		"a contradiction":                   {vm("    mappings:\n      - {cost: 1, group: g}\n      - {cost: 2, group: g}"), "contradicts m1 at line 6 (flat 2 against flat 1) while both hold"},
		"a contradiction by overlap":        {vm("    mappings:\n      - {cost: 1, group: g, end: 2026-03-02}\n      - {cost: 2, group: g, start: 2026-03-01}"), "contradicts"},
		"no overlap when one ends first":    {vm("    mappings:\n      - {cost: 1, group: g, end: 2026-03-01}\n      - {cost: 2, group: g, start: 2026-03-01}"), ""},
		"a scope's rule is no duplicate":    {vm("    mappings:\n      - {cost: 1, group: g}\n      - {cost: 1, group: g, scope: a}"), ""},
		"the default group by name":         {vm("    mappings:\n      - {cost: 1}\n      - {cost: 1, group: _DEFAULT_}\n      - {cost: 1, group: g}"), "a duplicate of m1"},
		"equal levels, differently written": {vm("    thresholds:\n      - {level: 1, cost: 1, group: g}\n      - {level: 1.0, cost: 2, group: g}"), "contradicts t1"},
		"an unknown metric":                 {"currency: EUR\nservices: [{name: gpu, mappings: [{cost: 1}]}]", "service gpu: no such metric: known are disk, vm"},
		"a service twice":                   {"currency: EUR\nservices: [{name: vm, mappings: [{cost: 1}]}, {name: vm, mappings: [{cost: 1, group: _DEFAULT_, scope: a}]}]", "service vm is listed twice"},
		"an end before the start":           {vm("    mappings: [{cost: 1, group: g, start: 2026-03-02, end: 2026-03-02}]"), "so it never holds"},
		"an unlisted group":                 {vm("    mappings: [{cost: 1, group: h}, {cost: 1, group: g}]"), `group "h" is not listed under groups`},
		"an unused group":                   {vm("    mappings: [{cost: 1}]"), `warning: group "g" has no rules`},
		"a threshold on what is no number":  {vm("    fields: [{name: f, mappings: [{value: m1.tiny, cost: 1, group: g}], thresholds: [{level: 1, cost: 1}]}]"), `threshold t1 is on a field whose value can be "m1.tiny"`},
		"a threshold on numbers":            {vm("    fields: [{name: f, mappings: [{value: 4, cost: 1, group: g}], thresholds: [{level: 1, cost: 1}]}]"), ""},
		"a price out of range":              {vm("    mappings: [{cost: 999999999999, group: g}, {cost: 999999999999, group: g, type: rate, scope: a}]"), "out of range"},
		"a level that never counts":         {vm("    thresholds: [{level: -1, cost: 1, group: g}]"), "warning: service vm, threshold t1 at level -1, group g: levels of -1 and below never count"},
		"a flat below zero":                 {vm("    mappings: [{cost: -1, group: g}]"), "warning: service vm, mapping m1, group g: a flat mapping below zero never counts"},
		"rates without anything flat":       {vm("    mappings: [{cost: 2, type: rate, group: g}]"), "so it always gives 0"},
		"an id twice":                       {vm("    mappings: [{cost: 1, id: a, group: g}, {cost: 2, id: a}]"), "id a is already that of the rule at line 5"},
		"a module twice":                    {vm("    mappings: [{cost: 1, group: g}]\nmodules: [{module: hashmap}, {module: hashmap}]"), "module hashmap is listed twice"},
		"a mistake in an expression":        {vm("    mappings: [{cost: 1, group: g}]\nexpressions:\n  - price: price * cost"), "7:20: expression e1, price: unknown name cost"},
		"a mistake in quotes":               {vm("    mappings: [{cost: 1, group: g}]\nskip: \"cost\""), "6:8: skip: unknown name cost"},
		"a skip that is no condition":       {vm("    mappings: [{cost: 1, group: g}]\nskip: qty"), "skip: expected true or false, this is a number"},
		"no currency":                       {"services: [{name: vm, mappings: [{cost: 1}]}]", "warning: the plan names no currency"},
	} {
		t.Run(name, func(t *testing.T) {
			found := parse(t, tt.text).Validate(plan.Metrics{"vm": nil, "disk": nil})
			if tt.want == "" && len(found) > 0 || !strings.Contains(found.Error(), tt.want) {
				t.Errorf("%s,\nwant %s", found.Error(), tt.want)
			}
			if refused := found.Err() != nil; refused != (tt.want != "" && !strings.Contains(tt.want, "warning") && tt.want != "so it always gives 0") {
				t.Errorf("refused: %v", refused)
			}
		})
	}
}

func TestDigestNamesContentNotLayout(t *testing.T) {
	t.Parallel()
	base := "currency: EUR\nservices:\n  - name: vm\n    fields:\n      - {name: a, mappings: [{value: x, cost: 0.10}]}\n      - {name: b, mappings: [{value: x, cost: 1}]}\n"
	want := parse(t, base).Digest()
	for name, tt := range map[string]struct {
		text string
		same bool
	}{
		"comments":           {"# hello\n" + base, true},
		"zeros at the end":   {strings.Replace(base, "0.10", `"0.1000"`, 1), true},
		"an id by default":   {strings.Replace(base, "value: x", "id: m1, value: x", 1), true},
		"another cost":       {strings.Replace(base, "0.10", "0.11", 1), false},
		"another order":      {strings.NewReplacer("name: a", "name: b", "name: b", "name: a", "0.10", "1", "cost: 1}", "cost: 0.1}").Replace(base), false},
		"another id":         {strings.Replace(base, "value: x", "id: n1, value: x", 1), false},
		"a skip":             {base + "skip: qty == 0\n", false},
		"another start":      {strings.Replace(base, "value: x", "start: 2026-01-01, value: x", 1), false},
		"a midnight in full": {strings.Replace(base, "value: x", "value: x", 1), true},
	} {
		if got := parse(t, tt.text).Digest(); (got == want) != tt.same {
			t.Errorf("%s: same digest: %v, want %v", name, got == want, tt.same)
		}
	}
	if got := parse(t, string(example(t))).Digest(); got != exampleDigest {
		t.Errorf("the example's digest is %s, want %s: stored plans would lose their names", got, exampleDigest)
	}
}

const exampleDigest = "725da2d06fe20fd1ceb190f1ba718cc15357f7a9116b9d96d1c0473e27ad3167"

func TestYAMLReadsBackEqual(t *testing.T) {
	t.Parallel()
	p := parse(t, string(example(t)))
	again, err := plan.Parse("again.yaml", p.YAML())
	if err != nil {
		t.Fatalf("%s\n%v", p.YAML(), err)
	}
	if again.Digest() != p.Digest() {
		t.Errorf("read back differs:\n%s", cmp.Diff(p, again, cmpopts.IgnoreUnexported(plan.Plan{}, plan.Service{}, plan.Field{}, plan.Mapping{}, plan.Threshold{}, plan.Expression{}, plan.Module{})))
	}
}

func TestModulesFor(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		modules string
		want    []plan.ModuleName
	}{
		"all by default":             {"", []plan.ModuleName{plan.Hashmap, plan.Expressions}},
		"priority decides the order": {"{module: expressions, priority: 3}, {module: hashmap, priority: 2}", []plan.ModuleName{plan.Expressions, plan.Hashmap}},
		"equal: hashmap first":       {"{module: expressions}, {module: hashmap}", []plan.ModuleName{plan.Hashmap, plan.Expressions}},
		"one off":                    {"{module: hashmap, enabled: false}", []plan.ModuleName{plan.Expressions}},
		"off for this scope":         {"{module: hashmap, enabled: false, scope: a}", []plan.ModuleName{plan.Expressions}},
		"the scope's counts":         {"{module: hashmap, enabled: true, scope: a}, {module: hashmap, enabled: false}", []plan.ModuleName{plan.Hashmap, plan.Expressions}},
		"another scope's does not":   {"{module: none, scope: b}", []plan.ModuleName{plan.Hashmap, plan.Expressions}},
		"none":                       {"{module: none, scope: a}", nil},
		"none, but not here":         {"{module: none}, {module: none, scope: a, enabled: false}", []plan.ModuleName{plan.Hashmap, plan.Expressions}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := parse(t, "modules: ["+tt.modules+"]\ncurrency: EUR").ModulesFor("a"); !slices.Equal(got, tt.want) {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}

func TestSchemaAcceptsWhatParseAccepts(t *testing.T) {
	t.Parallel()
	data, err := plan.Schema()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("plan.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("plan.json")
	if err != nil {
		t.Fatal(err)
	}
	check := func(text []byte) error {
		j, err := yaml.YAMLToJSON(text)
		if err != nil {
			t.Fatal(err)
		}
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(string(j)))
		if err != nil {
			t.Fatal(err)
		}
		return schema.Validate(v)
	}
	if err := check(example(t)); err != nil {
		t.Errorf("the example: %v", err)
	}
	for name, text := range map[string]string{
		"a misspelt key":         "curency: EUR",
		"a cost that is no cost": "services: [{name: vm, mappings: [{cost: cheap}]}]",
		"a value on a service":   "services: [{name: vm, mappings: [{cost: 1, value: a}]}]",
		"a field without value":  "services: [{name: vm, fields: [{name: f, mappings: [{cost: 1}]}]}]",
		"another type":           "services: [{name: vm, mappings: [{cost: 1, type: percent}]}]",
	} {
		if check([]byte(text)) == nil {
			t.Errorf("%s passes the schema", name)
		}
	}
}

func TestDiff(t *testing.T) {
	t.Parallel()
	base := string(example(t))
	a := parse(t, base)
	for name, tt := range map[string]struct {
		old, new string
		want     string
	}{
		"nothing":        {"# A plan", "# The plan", ""},
		"a cost":         {`"0.0100"`, `"0.0110"`, "~ service instance, field flavor_name, mapping of value \"m1.tiny\": flat 0.01 -> flat 0.011\n"},
		"an end":         {"end: 2026-07-01", "end: 2026-08-01", "~ service instance, field flavor_name, mapping of value \"m1.small\": flat 0.02 to 2026-07-01T00:00:00Z -> flat 0.02 to 2026-08-01T00:00:00Z\n"},
		"a rule gone":    {"          - {value: m1.tiny, cost: \"0.0100\"}\n", "", "- service instance, field flavor_name, mapping of value \"m1.tiny\": flat 0.01\n"},
		"a rule added":   {"          - {value: 1.0", "          - {value: big, cost: 3}\n          - {value: 1.0", "+ service instance, field flavor_name, mapping of value \"big\": flat 3\n"},
		"a skip":         {"skip: qty == 0", "skip: qty <= 0", "~ skip: \"qty == 0\" -> \"qty <= 0\"\n"},
		"a module state": {"scope: internal}", "scope: internal, enabled: false}", "~ module none, scope internal: enabled true, priority 0 -> enabled false, priority 0\n"},
		"an expression":  {"price * 0.8", "price * 0.7", "~ expression e1: price * 0.8 when hour(begin) < 6, metric instance -> price * 0.7 when hour(begin) < 6, metric instance\n"},
		"a threshold":    {"level: 16", "level: 17", "- service instance, field vcpus, threshold at level 16: rate 0.95\n+ service instance, field vcpus, threshold at level 17: rate 0.95\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(base, tt.old) {
				t.Fatalf("the example has no %s", tt.old)
			}
			b := parse(t, strings.Replace(base, tt.old, tt.new, 1))
			if got := plan.Diff(a, b); got != tt.want {
				t.Errorf("%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

// What applies one after the other is compared in its order too, whatever else
// changes, and a formula of several lines is one change of one line.
func TestDiffOfOrderAndLines(t *testing.T) {
	t.Parallel()
	const head = "services:\n  - {name: vm, fields: [{name: a, thresholds: [{level: 1, cost: 1}]}, {name: b, thresholds: [{level: 1, cost: 2}]}]}\n"
	const double, add = "  - {id: double, price: price * 2}\n", "  - {id: add, price: price + 1}\n"
	other := strings.Replace(head, "{name: a, thresholds: [{level: 1, cost: 1}]}, {name: b, thresholds: [{level: 1, cost: 2}]}", "{name: b, thresholds: [{level: 1, cost: 2}]}, {name: a, thresholds: [{level: 1, cost: 1}]}, {name: c}", 1)
	for name, tt := range map[string]struct{ a, b, want string }{
		"expressions in another order":            {head + "expressions:\n" + double + add, head + "expressions:\n" + add + double, "~ order of expressions: double, add -> add, double\n"},
		"beside a new one":                        {head + "expressions:\n" + double + add, head + "expressions:\n" + add + "  - {id: c, price: '1'}\n" + double, "+ expression c: 1\n~ order of expressions: double, add -> add, double\n"},
		"one that is gone moves nothing":          {head + "expressions:\n" + double + add, head + "expressions:\n" + add, "- expression double: price * 2\n"},
		"fields in another order beside a change": {head, other, "+ service vm, field c\n~ order of fields: vm.a, vm.b -> vm.b, vm.a\n"},
		"a formula of several lines":              {head, head + "expressions:\n  - id: long\n    price: |\n      price *\n        2\n    when: |\n      hour(begin) < 6\n      && qty > 1\n", "+ expression long: price * 2 when hour(begin) < 6 && qty > 1\n"},
		"its line breaks change no price":         {head + "expressions:\n" + double, head + "expressions:\n  - id: double\n    price: |\n      price\n      * 2\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := plan.Diff(parse(t, tt.a), parse(t, tt.b)); got != tt.want {
				t.Errorf("%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

func TestLargePlan(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("currency: EUR\nservices:\n  - name: vm\n    fields:\n      - name: f\n        mappings:\n")
	const n = 20_000
	for i := range n {
		b.WriteString("          - {value: v" + decimal.New(int64(i), 0).String() + ", cost: 0.01}\n")
	}
	p := parse(t, b.String())
	if found := p.Validate(nil); len(found) > 0 {
		t.Error(found)
	}
	if got := len(p.Services[0].Fields[0].Mappings); got != n {
		t.Errorf("%d mappings, want %d", got, n)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(example(f))
	for _, s := range []string{"", "a: [", "- a", "services: [{name: vm, mappings: [{cost: 1e999}]}]", "groups: &g [*g]", "{{{{", "? a\n: b", "a: |\n  b", "\xff\xfe", "currency: EUR\n---\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, found := plan.Check("fuzz.yaml", data, plan.Metrics{"instance": nil})
		if (p == nil) != (found.Err() != nil) {
			t.Fatalf("plan %v, findings %v", p != nil, found)
		}
		if p == nil {
			return
		}
		again, err := plan.Parse("again.yaml", p.YAML())
		if err != nil {
			t.Fatalf("written as\n%s\n%v", p.YAML(), err)
		}
		if again.Digest() != p.Digest() {
			t.Fatalf("written as\n%s\nit reads back differently", p.YAML())
		}
		if _, err := json.Marshal(found); err != nil {
			t.Fatal(err)
		}
	})
}
