package metric_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/metric"
)

func parse(tb testing.TB, text string) *metric.Set {
	tb.Helper()
	set, err := metric.Parse("metrics.yaml", []byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	return set
}

func get(tb testing.TB, set *metric.Set, name string) *metric.Metric {
	tb.Helper()
	m, ok := set.Get(name)
	if !ok {
		tb.Fatalf("no metric %s in %v", name, set.Names())
	}
	return m
}

func TestParseDefault(t *testing.T) {
	t.Parallel()
	set, err := metric.Parse("metrics.yaml", metric.Default())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"disk.capacity", "disk.io.requests", "instance", "memory", "network.incoming", "network.outgoing", "vcpu",
	}
	if diff := cmp.Diff(want, set.Names()); diff != "" {
		t.Error(diff)
	}
	memory := get(t, set, "memory")
	if got := memory.Factor.RatString(); got != "1/1073741824" {
		t.Errorf("memory factor %s", got)
	}
	if memory.Unit != "GiB" || memory.ScopeKey != "project_id" || memory.RegionKey != "region" {
		t.Errorf("memory = %+v", memory)
	}
}

// Without groupby and metadata a metric over a tier has every column that
// tells rows of the tier apart, and the instance's name.
func TestParseTierAttributes(t *testing.T) {
	t.Parallel()
	set := parse(t, `
metrics:
  in: {unit: B, table: port_volume, quantity: sum, value: rx_bytes}
  named: {unit: B, table: port_volume, quantity: sum, value: rx_bytes, alt_name: net, groupby: {flavor: flavor_name}, metadata: []}
`)
	var names []string
	for _, a := range get(t, set, "in").Attributes() {
		names = append(names, a.Name)
	}
	want := []string{"flavor_name", "image_id", "instance_name", "instance_uuid", "network_uuid", "user_id", "vcpus"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]metric.Attribute{{Name: "flavor", Column: "flavor_name"}}, get(t, set, "net").Attributes()); diff != "" {
		t.Error(diff)
	}
}

func TestParseReportsProblems(t *testing.T) {
	t.Parallel()
	// each entry is one metric's keys; %s stands for the part under test
	const tier = "metrics:\n  m:\n    unit: x\n    table: instance_metrics\n    quantity: time\n    "
	const own = "metrics:\n  m:\n    unit: x\n    table: events\n    time: ts\n    resource: id\n    quantity: sum\n    value: v\n    "
	for name, tt := range map[string]struct{ text, want string }{
		"an empty file":                                {"", "metrics.yaml: the file is empty"},
		"no metrics":                                   {"scope_key: a\n", "metrics.yaml:1:1: the file needs metrics"},
		"metrics without an entry":                     {"metrics: {}\n", "metrics.yaml:1:1: the file needs metrics"},
		"broken YAML":                                  {"metrics: [\n", "metrics.yaml:1:10: "},
		"a second document":                            {"metrics: {}\n---\nmetrics: {}\n", "metrics.yaml:3:1: a second YAML document"},
		"an unknown key at the top":                    {"metric: {}\n", "metrics.yaml:1:1: unknown key \"metric\": known are scope_key"},
		"an unknown key of a metric":                   {tier + "colour: red\n", "metrics.yaml:6:5: unknown key \"colour\""},
		"a key given twice":                            {tier + "unit: y\n", "metrics.yaml:6:5: \"unit\" is given twice"},
		"a merge key":                                  {tier + "<<: {unit: y}\n", "metrics.yaml:6:5: merge keys are not supported"},
		"dashes without end":                           {strings.Repeat("- ", 2_000_000), "line 1 nests lists or keys more than 64 deep"},
		"an alias without anchor":                      {tier + "groupby: *none\n", "alias none has no anchor"},
		"no unit":                                      {"metrics:\n  m: {table: instance_metrics, quantity: time}\n", "metrics.yaml:2:3: metric m needs unit"},
		"an unknown quantity":                          {"metrics:\n  m: {unit: x, table: instance_metrics, quantity: most}\n", "2:51: quantity \"most\": must be one of sum, time"},
		"a table that is an expression":                {"metrics:\n  m: {unit: x, table: \"file('/etc/passwd')\", quantity: time}\n", "2:23: table \"file('/etc/passwd')\": a name or database.name"},
		"a table of the server":                        {"metrics:\n  m: {unit: x, table: System.users, quantity: time}\n", "2:23: table System.users: the server's own"},
		"a value that is an expression":                {own + "groupby: \"v) FROM x --\"\n", "must be the name of a column (letters, digits and _), not an expression"},
		"a backtick in a column":                       {own + "groupby: \"a`b\"\n", "must be the name of a column"},
		"a column the tier does not have":              {tier + "value: ram\n", "metrics.yaml:6:12: value ram: instance_metrics has no such column"},
		"a value that is no number":                    {tier + "value: flavor_name\n", "value flavor_name: not a number"},
		"an attribute that is measured":                {tier + "groupby: [cpu_pct_avg]\n", "groupby cpu_pct_avg: a measured value cannot tell usage apart"},
		"an integral the tier does not have":           {tier + "integral: capacity_byte_seconds\n", "integral capacity_byte_seconds: instance_metrics has no such sum"},
		"value and integral":                           {tier + "value: vcpus\n    integral: memory_actual_byte_seconds\n", "value and integral exclude each other"},
		"a bucket for a tier":                          {tier + "bucket: 300\n", "bucket is for tables of your own"},
		"two values for time":                          {tier + "value: [vcpus, cpu_pct_max]\n", "only quantity sum adds up several columns"},
		"a factor that is no number":                   {tier + "factor: one\n", "metrics.yaml:6:13: factor \"one\" is neither a decimal number nor a fraction"},
		"a factor over zero":                           {tier + "factor: 1/0\n", "factor 1/0 divides by zero"},
		"a factor in hexadecimal":                      {tier + "factor: 0x10\n", "factor \"0x10\" is neither"},
		"a factor that is infinite":                    {tier + "factor: .inf\n", "factor"},
		"a factor too fine":                            {tier + "factor: 1e-30\n", "factor 1e-30: as a reduced fraction it must stay below"},
		"MAP without map":                              {tier + "mutate: MAP\n", "mutate: MAP needs a mutate_map"},
		"a map without MAP":                            {tier + "mutate_map: {1: 2}\n", "mutate_map is only used with mutate: MAP"},
		"a map key in quotes, which would never match": {tier + "mutate: MAP\n    mutate_map: {\"1\": 2}\n", "mutate_map key \"1\" is text and would never match"},
		"equal map keys":                               {tier + "mutate: MAP\n    mutate_map: {1: 2, 1.0: 3}\n", "mutate_map has the key 1 twice"},
		"a map value too fine":                         {tier + "mutate: MAP\n    mutate_map: {1: 1e-19}\n", "more than 18 digits after the point"},
		"groupby and metadata overlap":                 {tier + "groupby: [user_id]\n    metadata: [user_id]\n", "attribute \"user_id\" is in groupby and in metadata"},
		"an attribute twice":                           {tier + "groupby: [user_id, user_id]\n", "groupby names \"user_id\" twice"},
		"two metrics of one name":                      {"metrics:\n  a: {unit: x, table: instance_metrics, quantity: time}\n  b: {unit: x, table: instance_metrics, quantity: time, alt_name: a}\n", "3:3: another metric is called \"a\""},
		"no time for an own table":                     {"metrics:\n  m: {unit: x, table: events, quantity: presence, resource: id}\n", "metric m needs time"},
		"no resource for an own table":                 {"metrics:\n  m: {unit: x, table: events, quantity: presence, time: ts}\n", "metric m needs resource"},
		"no value for sum":                             {"metrics:\n  m: {unit: x, table: events, quantity: sum, time: ts, resource: id}\n", "metric m needs value"},
		"a version without key":                        {own + "version: v2\n", "version needs key"},
		"a bucket that does not divide a day":          {own + "bucket: 7\n", "bucket \"7\": must be whole seconds that divide a day"},
		"time over rows of unknown length":             {"metrics:\n  m: {unit: x, table: events, quantity: time, time: ts, resource: id}\n", "needs covered (a column of seconds) or bucket"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := metric.Parse("metrics.yaml", []byte(tt.text))
			var config *ratebatch.ConfigError
			if !errors.As(err, &config) {
				t.Fatalf("error %v, want a ConfigError", err)
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error\n%v\nwant %s", err, tt.want)
			}
		})
	}
}

func TestParseReportsAllProblemsTogether(t *testing.T) {
	t.Parallel()
	_, err := metric.Parse("m.yaml", []byte(`metrics:
  a:
    unit: 5
    table: instance_metrics
    quantity: time
    factor: x
  b:
    unit: GB
    table: nowhere.else.at.all
    quantity: sum
    value: v
`))
	if err == nil {
		t.Fatal("no error")
	}
	want := `m.yaml:3:11: unit must be text
m.yaml:6:13: factor "x" is neither a decimal number nor a fraction like 1/1048576
m.yaml:9:12: table "nowhere.else.at.all": a name or database.name of letters, digits and _`
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Error(diff)
	}
	if ratebatch.ExitCode(err) != ratebatch.ExitConfig {
		t.Errorf("exit code %d", ratebatch.ExitCode(err))
	}
	var p *metric.Problem
	if !errors.As(err, &p) || p.Line != 3 {
		t.Errorf("first problem %+v", p)
	}
}

func TestDigest(t *testing.T) {
	t.Parallel()
	base := parse(t, "metrics:\n  a: {unit: x, table: instance_metrics, quantity: time, factor: 1/2}\n  b: {unit: x, table: port_volume, quantity: presence}\n").Digest()
	for name, tt := range map[string]struct {
		text string
		same bool
	}{
		"order, description, defaults and the way a number is written do not matter": {
			"scope_key: project_id\nmetrics:\n  b: {unit: x, table: port_volume, quantity: presence, description: ports}\n  a: {unit: x, table: instance_metrics, quantity: time, factor: 0.50, mutate: NONE}\n", true,
		},
		"a factor does":    {"metrics:\n  a: {unit: x, table: instance_metrics, quantity: time, factor: 1/3}\n  b: {unit: x, table: port_volume, quantity: presence}\n", false},
		"a scope key does": {"scope_key: user_id\nmetrics:\n  a: {unit: x, table: instance_metrics, quantity: time, factor: 1/2}\n  b: {unit: x, table: port_volume, quantity: presence}\n", false},
		"a unit does":      {"metrics:\n  a: {unit: y, table: instance_metrics, quantity: time, factor: 1/2}\n  b: {unit: x, table: port_volume, quantity: presence}\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := parse(t, tt.text).Digest(); (got == base) != tt.same {
				t.Errorf("digest %s, base %s", got, base)
			}
		})
	}
	if !regexp.MustCompile("^[0-9a-f]{64}$").MatchString(base) {
		t.Errorf("digest %s", base)
	}
}

func TestSchemaAcceptsDefaultAndRefusesUnknownKeys(t *testing.T) {
	t.Parallel()
	compiler := jsonschema.NewCompiler()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(metric.Schema()))
	if err != nil {
		t.Fatal(err)
	}
	if err := compiler.AddResource("metrics.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("metrics.json")
	if err != nil {
		t.Fatal(err)
	}
	check := func(text []byte) error {
		data, err := yaml.YAMLToJSON(text)
		if err != nil {
			return err
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
		if err != nil {
			return err
		}
		return schema.Validate(value)
	}
	if err := check(metric.Default()); err != nil {
		t.Error(err)
	}
	if err := check([]byte("metrics: {m: {unit: x, table: instance_metrics, quantity: time, colour: red}}")); err == nil {
		t.Error("an unknown key passed")
	}
}

// The schema for editors and the parser know the same keys.
func TestSchemaKeys(t *testing.T) {
	t.Parallel()
	var schema struct {
		Defs struct {
			Metric struct{ Properties map[string]any }
		} `json:"$defs"`
	}
	if err := json.Unmarshal(metric.Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	_, err := metric.Parse("m", []byte("metrics: {m: {unknown: 1}}"))
	_, known, _ := strings.Cut(fmt.Sprint(err), "known are ")
	known, _, _ = strings.Cut(known, "\n")
	want := strings.Split(known, ", ")
	slices.Sort(want)
	var got []string
	for key := range schema.Defs.Metric.Properties {
		got = append(got, key)
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(metric.Default())
	f.Add([]byte("metrics:\n  a: &a {unit: x, table: t.u, quantity: sum, value: *a}\n"))
	f.Add([]byte("metrics: [{a: !!binary x}]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		set, err := metric.Parse("m.yaml", data)
		if err != nil {
			return
		}
		again, err := metric.Parse("m.yaml", data)
		if err != nil || set.Digest() != again.Digest() {
			t.Errorf("%v: read twice, two answers", err)
		}
	})
}

// Each query's file says what it is for, and its name.
func TestQueryHeaders(t *testing.T) {
	t.Parallel()
	files, err := os.ReadDir("queries")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile("queries/" + file.Name())
		if err != nil {
			t.Fatal(err)
		}
		want := "-- name:    " + strings.TrimSuffix(file.Name(), ".sql") + "\n"
		if !strings.HasPrefix(string(data), want) {
			t.Errorf("%s does not begin with %s", file.Name(), want)
		}
		for _, part := range []string{"\n-- purpose: ", "\n-- params:  ", "\n-- reads:   ", "\n-- why:     "} {
			if !strings.Contains(string(data), part) {
				t.Errorf("%s has no line %s", file.Name(), strings.TrimSpace(part))
			}
		}
	}
}
