package plan_test

import (
	"strings"
	"testing"

	"github.com/ratebatch/ratebatch/ratebatch/plan"
)

// Both forms hold the same rules: the answers of the API, and what the
// client's list commands print.
const apiAnswers = `{
 "services": [{"service_id": "s1", "name": "instance"}, {"service_id": "s2", "name": "volume"}],
 "groups": [{"group_id": "g1", "name": "license"}],
 "fields": [{"field_id": "f1", "name": "flavor_name", "service_id": "s1"}],
 "mappings": [
  {"mapping_id": "m-1", "value": "m1.tiny", "type": "flat", "cost": "0.4199999999999999844568776552", "service_id": null, "field_id": "f1", "group_id": "g1",
   "tenant_id": null, "created_at": "2026-01-01T00:00:00", "start": "2026-02-01T00:00:00", "end": null, "name": "tiny", "description": "since February",
   "deleted": null, "created_by": "admin", "updated_by": null, "deleted_by": null},
  {"mapping_id": "m-2", "value": "", "type": "rate", "cost": "1.2500000000000000000000000000", "service_id": "s2", "field_id": null, "group_id": null, "tenant_id": "p1",
   "name": "0123456789abcdef0123456789abcdef"},
  {"mapping_id": "m-3", "value": "", "type": "flat", "cost": "3", "service_id": "s2", "field_id": null, "group_id": null, "tenant_id": null, "deleted": "2026-03-01T00:00:00"}
 ],
 "thresholds": [{"threshold_id": "t-1", "level": "10.00000000", "type": "flat", "cost": "0.0000000000000000000000000001", "service_id": "s2", "field_id": null, "group_id": null, "tenant_id": null}],
 "scripts": [{"script_id": "x", "name": "discount"}]
}`

const clientLists = `
[{"Name": "instance", "Service ID": "s1"}, {"Name": "volume", "Service ID": "s2"}]
[{"Name": "license", "Group ID": "g1"}]
[{"Name": "flavor_name", "Field ID": "f1", "Service ID": "s1"}]
[]
[{"Mapping ID": "m-2", "Value": null, "Cost": "1.2500000000000000000000000000", "Type": "rate", "Field ID": null, "Service ID": "s2", "Group ID": null, "Project ID": "p1"}]
[{"Mapping ID": "m-1", "Value": "m1.tiny", "Cost": "0.4199999999999999844568776552", "Type": "flat", "Field ID": "f1", "Service ID": null, "Group ID": "g1", "Project ID": null}]
[{"Threshold ID": "t-1", "Level": "10.00000000", "Cost": "0.0000000000000000000000000001", "Type": "flat", "Field ID": null, "Service ID": "s2", "Group ID": null, "Project ID": null}]
[{"Mapping ID": "m-1", "Value": "m1.tiny", "Cost": "0.4199999999999999844568776552", "Type": "flat", "Field ID": "f1", "Service ID": null, "Group ID": "g1", "Project ID": null}]
`

func notes(list []plan.Note) string {
	var b strings.Builder
	for _, n := range list {
		b.WriteString(n.String() + "\n")
	}
	return b.String()
}

func TestFromCloudKitty(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		docs  []string
		want  string
		notes []string
	}{
		"the API's answers": {
			[]string{apiAnswers},
			`version: 1
groups:
  - license
services:
  - name: instance
    fields:
      - name: flavor_name
        mappings:
          - {value: m1.tiny, cost: "0.42", group: license, start: "2026-02-01T00:00:00Z", id: m-1, description: "tiny: since February"}
  - name: volume
    mappings:
      - {cost: "1.25", type: rate, scope: p1, id: m-2}
    thresholds:
      - {level: "10", cost: "0.0000000000000000000000000001", id: t-1}
`,
			[]string{
				"mapping m-1: cost 0.4199999999999999844568776552 is 0.42 as a binary float: rounded to 0.42",
				"not carried over: mapping m-3: it is deleted",
				"not carried over: Python script: write it as an expression rule",
				"not carried over: mapping created_by: 1 times",
				"start and end are taken as UTC",
				"does not know the currency",
			},
		},
		"the client's lists, in several documents": {
			strings.SplitAfter(clientLists, "]\n"),
			`version: 1
groups:
  - license
services:
  - name: instance
    fields:
      - name: flavor_name
        mappings:
          - {value: m1.tiny, cost: "0.42", group: license, id: m-1}
  - name: volume
    mappings:
      - {cost: "1.25", type: rate, scope: p1, id: m-2}
    thresholds:
      - {level: "10", cost: "0.0000000000000000000000000001", id: t-1}
`,
			[]string{"the client's lists have no start, end and description"},
		},
		"rules in one place": {
			[]string{`{"services": [{"service_id": "s", "name": "vm"}], "mappings": [
				{"mapping_id": "a", "service_id": "s", "cost": "1", "start": "2026-01-01T00:00:00"},
				{"mapping_id": "b", "service_id": "s", "cost": "2", "start": "2026-02-01T00:00:00", "end": "2026-03-01T00:00:00"},
				{"mapping_id": "c", "service_id": "s", "cost": "3", "start": "2026-02-10T00:00:00", "end": "2026-02-20T00:00:00"}]}`},
			`version: 1
services:
  - name: vm
    mappings:
      - {cost: "1", start: "2026-01-01T00:00:00Z", end: "2026-02-01T00:00:00Z", id: a}
      - {cost: "1", start: "2026-03-01T00:00:00Z", id: a.2}
      - {cost: "2", start: "2026-02-01T00:00:00Z", end: "2026-02-10T00:00:00Z", id: b}
      - {cost: "2", start: "2026-02-20T00:00:00Z", end: "2026-03-01T00:00:00Z", id: b.2}
      - {cost: "3", start: "2026-02-10T00:00:00Z", end: "2026-02-20T00:00:00Z", id: c}
`,
			[]string{"service vm, mapping a: cut to the time", "service vm, mapping b: cut to the time"},
		},
		"what hangs in the air": {
			[]string{`{"services": [{"service_id": "s", "name": "vm"}], "fields": [{"field_id": "f", "name": "x", "service_id": "gone"}],
				"mappings": [{"mapping_id": "a", "service_id": "s", "cost": "1", "group_id": "g9"}, {"mapping_id": "b", "field_id": "f", "value": "v", "cost": "1"},
					{"mapping_id": "c", "service_id": "s", "cost": "1", "value": "v"}, {"mapping_id": "d", "service_id": "s", "cost": "NaN"},
					{"mapping_id": "e", "service_id": "s", "cost": "1", "type": "percent"}],
				"thresholds": [{"threshold_id": "t", "service_id": "s", "cost": "1", "level": "x"}]}`},
			"version: 1\ngroups:\n  - g9\nservices:\n  - name: vm\n    mappings:\n      - {cost: \"1\", group: g9, id: a}\n",
			[]string{
				`not carried over: field x: its service "gone" is not listed`, "group g9: it is not listed, so its id serves as its name",
				"not carried over: mapping b: its field", "not carried over: mapping c: a mapping of a field needs a value",
				`not carried over: mapping d: cost: "NaN" is not a decimal number`, `not carried over: mapping e: unknown type "percent"`,
				`not carried over: threshold t: level: "x" is not a decimal number`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var docs [][]byte
			for _, d := range tt.docs {
				docs = append(docs, []byte(d))
			}
			p, list, err := plan.FromCloudKitty(docs...)
			if err != nil {
				t.Fatal(err)
			}
			if got := string(p.YAML()); got != tt.want {
				t.Errorf("%s\nwant\n%s", got, tt.want)
			}
			for _, want := range tt.notes {
				if !strings.Contains(notes(list), want) {
					t.Errorf("no note %q in\n%s", want, notes(list))
				}
			}
			if err := p.Validate(nil).Err(); err != nil {
				t.Errorf("the plan made is refused: %v", err)
			}
		})
	}
}

func TestBinaryTails(t *testing.T) {
	t.Parallel()
	for cost, want := range map[string]string{
		"0.4199999999999999844568776552":            "0.42",
		"1.3369999999999999662492200514":            "1.337",
		"0.1000000000000000055511151231":            "0.1",
		"-0.1000000000000000055511151231":           "-0.1",
		"123456.7890000000043073669076":             "123456.789",
		"0.2500000000000000000000000000":            "0.25",
		"0.0000000009313225746154785156":            "0.0000000009313225746154785156", // 1/2^30 was not typed in 15 digits
		"0.4199999999999999844568776553":            "0.42",                           // the database's last digit may be rounded
		"0.4199999999999999844568776559":            "0.4199999999999999844568776559",
		"0.1234567890123456789012345678":            "0.1234567890123456789012345678",
		"0.0000000000000000000000000001":            "0.0000000000000000000000000001",
		"999999999999.9999999999999999999999999999": "999999999999.9999999999999999999999999999",
	} {
		doc := `{"services": [{"service_id": "s", "name": "vm"}], "mappings": [{"mapping_id": "a", "service_id": "s", "cost": "` + cost + `"}]}`
		p, list, err := plan.FromCloudKitty([]byte(doc))
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Services[0].Mappings) == 0 {
			t.Errorf("%s: %s", cost, notes(list))
			continue
		}
		if got := p.Services[0].Mappings[0].Cost.String(); got != want {
			t.Errorf("%s: %s, want %s", cost, got, want)
		}
		if noted := strings.Contains(notes(list), "rounded to"); noted != (want != strings.TrimRight(cost, "0")) {
			t.Errorf("%s: noted: %v", cost, noted)
		}
	}
}

func TestFromCloudKittyRefusesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                           "no services, mappings or thresholds",
		"{":                          "document 1: at byte",
		"3":                          "expected an object or a list",
		"[3]":                        "item 1 of a list is no object",
		`[{"Name": "x"}]`:            "item 1 of a list is no hashmap object: it has Name",
		`{"services": [{"a": "b"}]}`: "item 1 of a list is no service: it has a",
	} {
		if _, _, err := plan.FromCloudKitty([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func FuzzFromCloudKitty(f *testing.F) {
	f.Add([]byte(apiAnswers))
	f.Add([]byte(clientLists))
	f.Add([]byte(`{"services": [], "mappings": [{"mapping_id": 1}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, _, err := plan.FromCloudKitty(data)
		if err != nil {
			return
		}
		if _, err := plan.Parse("imported.yaml", p.YAML()); err != nil && !tolerated(err.Error()) {
			t.Fatalf("%s\n%v", p.YAML(), err)
		}
	})
}

// tolerated are mistakes that names taken over from CloudKitty can have; the
// import command shows them.
func tolerated(err string) bool {
	for line := range strings.SplitSeq(err, "\n") {
		if !strings.Contains(line, "is empty") && !strings.Contains(line, "control or broken character") && !strings.Contains(line, "bytes: at most") {
			return false
		}
	}
	return true
}
