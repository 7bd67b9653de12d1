package metric_test

import (
	"strings"
	"testing"

	"github.com/ratebatch/ratebatch/ratebatch/metric"
)

// Every name of metrics.yaml that becomes an identifier of a statement is refused
// unless it is a plain name; what may be any text is a bound value or a literal.
func TestNamesThatReachSQLArePlain(t *testing.T) {
	const file = `metrics:
  NAME:
    unit: UNIT
    description: DESCRIPTION
    table: TABLE
    time: TIME
    bucket: 3600
    key: [KEY]
    version: [VERSION]
    quantity: sum
    value: VALUE
    scope_key: SCOPE
    region_key: REGION
    resource: [RESOURCE]
    groupby: {GROUP: COLUMN}
    metadata: [METADATA]
`
	plain := map[string]string{"NAME": "n", "UNIT": "u", "DESCRIPTION": "d", "TABLE": "t", "TIME": "time", "KEY": "k", "VERSION": "ver", "VALUE": "v", "SCOPE": "s", "REGION": "r", "RESOURCE": "res", "GROUP": "g", "COLUMN": "c", "METADATA": "m"}
	fill := func(place, text string) []byte {
		out := file
		for name, value := range plain {
			if name == place {
				value = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\x00", `\x00`).Replace(text) + `"`
			}
			out = strings.ReplaceAll(out, name, value)
		}
		return []byte(out)
	}
	if _, err := metric.Parse("metrics.yaml", fill("", "")); err != nil {
		t.Fatal(err)
	}
	hostile := []string{"a`b", "`", "a'b", `a"b`, `a\b`, "a;b", "a b", "a)b", "{a:String}", "${a}", "a--b/*", "a\nb", "a\x00b", "é", "🦊", strings.Repeat("a", 10_000), "", "sleep(3)", "toString(a)", "1a", "a.b.c", "system.users", "\xff"}
	for place := range plain {
		for _, x := range hostile {
			set, err := metric.Parse("metrics.yaml", fill(place, x))
			if err != nil {
				continue
			}
			switch place {
			case "UNIT", "DESCRIPTION": // any printable text
			case "REGION":
				if x != "" { // no region
					t.Errorf("%s %q is taken", place, x)
				}
			case "NAME", "GROUP":
				// They are values of a statement, and name files and columns of exports.
				if strings.ContainsAny(x, "`'\"\\;(){}$\n\x00 ") || len(x) > 128 || x == "" {
					t.Errorf("%s %q is taken", place, x)
				}
			default:
				t.Errorf("%s %q is taken: %+v", place, x, set.Metrics[0])
			}
		}
	}
}
