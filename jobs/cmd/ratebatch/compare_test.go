package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// cloudKittyFile writes what a CloudKitty that agrees would answer for database's
// instances: 10 instances a project, each hour, at 0.0123; change may falsify it.
func cloudKittyFile(t *testing.T, name string, change func(i int, project, begin *string, qty, price *float64) bool) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("Begin,End,Metric Type,Unit,Qty,Price,Group By,Metadata\n")
	for i := range 20 * 48 {
		project, begin := fmt.Sprintf("project-%d", i%2), fmt.Sprintf("2026-11-%02dT%02d:00:00", 1+i/20/24, i/20%24)
		qty, price := 1.0, 0.0123
		if change != nil && !change(i, &project, &begin, &qty, &price) {
			continue
		}
		fmt.Fprintf(&b, "%s,,instance,instance,%v,%v,\"{'id': 'vm-%d', 'project_id': '%s'}\",{}\n", begin, qty, price, i%20, project)
	}
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestAMonthIsComparedWithCloudKitty(t *testing.T) {
	withoutVariables(t)
	flags, e := database(t)
	must(t, append(append(append([]string{}, flags...), "rate"), now...)...)
	// CloudKitty rates instances only.
	if err := e.Conn().Exec(t.Context(), "ALTER TABLE rated_lines DELETE WHERE metric != 'instance' SETTINGS mutations_sync = 2"); err != nil {
		t.Fatal(err)
	}
	compare := func(code int, args ...string) comparison {
		t.Helper()
		got, stdout, stderr := cli(t, append(append(append([]string{}, flags...), "compare-cloudkitty", "--month", "2026-11", "--output", "json"), args...)...)
		var c comparison
		if err := json.Unmarshal([]byte(stdout), &c); got != code || err != nil {
			t.Fatalf("exit %d, want %d (%v)\n%s%s", got, code, err, stdout, stderr)
		}
		return c
	}
	if c := compare(0, cloudKittyFile(t, "same.csv", nil)); c.Compared != 96 || c.Different != 0 || c.Price.String() != "11.808" {
		t.Errorf("the same: %+v", c)
	}
	// One hour of project-0 is missing there, project-1 has one price more, one point
	// lies in another month.
	file := cloudKittyFile(t, "other.csv", func(i int, project, begin *string, _, price *float64) bool {
		if *project == "project-0" && *begin == "2026-11-01T05:00:00" {
			return false
		}
		if i == 21 {
			*price = 1.0123
		}
		if i == 959 {
			*begin = "2026-12-01T00:00:00"
		}
		return true
	})
	c := compare(20, "--by", "period", file)
	if c.Different != 3 || c.Outside != 1 || len(c.Differences) != 3 {
		t.Fatalf("%+v", c)
	}
	first := c.Differences[0]
	if first.Scope != "project-1" || first.Begin.Hour() != 1 || first.Their.Sub(first.Price).String() != "1" || !strings.Contains(first.Why, "price differs") {
		t.Errorf("the difference that matters most is %+v", first)
	}
	if d := c.Differences[1]; d.Scope != "project-0" || d.Why != "only here (1)" || d.Begin.Hour() != 5 {
		t.Errorf("%+v", d)
	}
	if c := compare(20, "--by", "scope", file); len(c.Differences) != 2 || c.Differences[0].Different != 2 || c.Differences[0].Periods != 48 {
		t.Errorf("by scope: %+v", c)
	}
	// A wide tolerance takes the price for the same.
	if c := compare(20, "--tolerance", "1.5", file); c.Different != 1 {
		t.Errorf("with a tolerance: %+v", c)
	}
	code, stdout, stderr := cli(t, append(append([]string{}, flags...), "compare-cloudkitty", "--month", "2026-11", "--by", "period", file)...)
	if code != 20 || !strings.Contains(stdout, "3 of 96 values differ") || !strings.Contains(stderr, "docs/from-cloudkitty.md") {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
	if code, _, stderr := cli(t, append(append([]string{}, flags...), "compare-cloudkitty", "--month", "2026-11", "/none.json")...); code != 2 {
		t.Errorf("no file: exit %d %s", code, stderr)
	}
}

func TestDataframesOfBothAPIsAreRead(t *testing.T) {
	v2 := `{"total":1,"dataframes":[{"period":{"begin":"2026-10-01T00:00:00+00:00","end":"2026-10-01T01:00:00+00:00"},"usage":{"instance":[{"vol":{"unit":"instance","qty":1.0},"rating":{"price":0.1},"groupby":{"id":"i1","project_id":"pa"},"metadata":{"flavor_id":"1"}}]}}]}`
	v1 := `{"dataframes":[{"begin":"2026-10-01T00:00:00","end":"2026-10-01T01:00:00","tenant_id":"pa","resources":[{"rating":"0.1","service":"instance","desc":{"flavor_id":"1"},"volume":"1.0"}]}]}`
	for name, tt := range map[string]struct {
		file, text, want string
	}{
		"API v2":                        {"a.json", v2, "pa instance 2026-10-01 1 0.1;"},
		"API v1":                        {"a.json", v1, "pa instance 2026-10-01 1 0.1;"},
		"two pages":                     {"a.json", v2 + "\n" + v1, "pa instance 2026-10-01 1 0.1;pa instance 2026-10-01 1 0.1;"},
		"CSV with the scope's column":   {"a.csv", "begin,type,qty,price,project_id\n2026-10-01 00:00:00,instance,1.0,0.1,pa\n", "pa instance 2026-10-01 1 0.1;"},
		"CSV with JSON in group by":     {"a.csv", "Begin,Metric Type,Qty,Price,Group By\n2026-10-01T00:00:00+00:00,instance,1.0,0.1,\"{\"\"project_id\"\": \"\"pa\"\"}\"\n", "pa instance 2026-10-01 1 0.1;"},
		"a point without the scope key": {"a.json", strings.Replace(v2, "project_id", "domain_id", 1), "--scope-key"},
		"a quantity that is none":       {"a.json", strings.Replace(v1, `"1.0"`, `"one"`, 1), "is no dataframes"},
		"a time that is none":           {"a.csv", "begin,type,qty,price,project_id\nsoon,instance,1,1,pa\n", "line 2"},
		"columns of something else":     {"a.csv", "name,age\nx,1\n", "columns"},
		"an empty file":                 {"a.json", "", "page 1"},
	} {
		t.Run(name, func(t *testing.T) {
			var got strings.Builder
			err := readPoints(tt.file, strings.NewReader(tt.text), "project_id", func(p point) error {
				fmt.Fprintf(&got, "%s %s %s %s %s;", p.scope, p.metric, p.begin.Format("2006-01-02"), p.qty, p.price)
				return nil
			})
			if err != nil {
				got.Reset()
				got.WriteString(err.Error())
			}
			if !strings.Contains(got.String(), tt.want) {
				t.Errorf("%s, want %s", got.String(), tt.want)
			}
		})
	}
}
