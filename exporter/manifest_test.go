package exporter_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/ratebatch/ratebatch/exporter"
	"github.com/ratebatch/ratebatch/exporter/exporttest"
)

var compiledSchema = sync.OnceValues(func() (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(exporter.ManifestSchema()))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("manifest.schema.json", doc); err != nil {
		return nil, err
	}
	return c.Compile("manifest.schema.json")
})

var validated sync.Map // sums of manifests that were looked at: tests read one often

// validate holds a manifest against its JSON Schema. Every test that reads one
// comes through here.
func validate(tb testing.TB, text []byte) {
	tb.Helper()
	sum := sha256.Sum256(text)
	if _, seen := validated.LoadOrStore(sum, true); seen {
		return
	}
	schema, err := compiledSchema()
	if err != nil {
		tb.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		tb.Fatal(err)
	}
	if err := schema.Validate(value); err != nil {
		tb.Errorf("the manifest is not valid: %v\n%s", err, text[:min(len(text), 2000)])
	}
}

func TestTheManifestsSchemaRefusesWhatIsNone(t *testing.T) {
	s := openStore(t)
	run := uuid.New()
	exporttest.Insert(t, s, run, 1, exporttest.Line{Scope: "alpha", Begin: exporttest.Hour("2026-03", 0), Price: "1"})
	exporttest.Commit(t, s, run, 1, "alpha", exporttest.Hour("2026-03", 0), exporttest.Hour("2026-04", 0))
	dir := t.TempDir()
	good, err := json.Marshal(manifest(t, dir, export(t, input(t, s, dir))))
	if err != nil {
		t.Fatal(err)
	}
	schema, err := compiledSchema()
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(m map[string]any){
		"another version":           func(m map[string]any) { m["manifest_version"] = 2 },
		"an unknown key":            func(m map[string]any) { m["run_id"] = "x" },
		"no files":                  func(m map[string]any) { m["files"] = []any{} },
		"a total with an exponent":  func(m map[string]any) { m["totals"] = map[string]any{"EUR": "1E-7"} },
		"a total that is no text":   func(m map[string]any) { m["totals"] = map[string]any{"EUR": 1.5} },
		"append without increments": func(m map[string]any) { m["mechanism"] = "append" },
		"closed and open at once":   func(m map[string]any) { m["state"].(map[string]any)["close"] = 1 },
		"a month that is none":      func(m map[string]any) { m["month"] = "2026-13" },
	} {
		var m map[string]any
		if err := json.Unmarshal(good, &m); err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(m); err != nil {
			t.Fatalf("unchanged: %v", err)
		}
		change(m)
		text, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if schema.Validate(value) == nil {
			t.Errorf("%s is valid", name)
		}
	}
}

// The schema is written by hand, so it is held against what is written: every
// key of the program's structures is described, and none is but those.
func TestTheManifestsSchemaHasEveryKey(t *testing.T) {
	var doc map[string]any
	if err := json.Unmarshal(exporter.ManifestSchema(), &doc); err != nil {
		t.Fatal(err)
	}
	var compare func(path string, typ reflect.Type, schema map[string]any)
	compare = func(path string, typ reflect.Type, schema map[string]any) {
		for typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		if typ.Kind() == reflect.Slice {
			typ, schema = typ.Elem(), schema["items"].(map[string]any)
		}
		if typ.Kind() != reflect.Struct || typ.PkgPath() == "time" {
			return
		}
		properties, _ := schema["properties"].(map[string]any)
		seen := map[string]bool{}
		for i := range typ.NumField() {
			field := typ.Field(i)
			if !field.IsExported() {
				continue
			}
			name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name == "" {
				name = field.Name
			}
			seen[name] = true
			of, ok := properties[name].(map[string]any)
			if !ok {
				t.Errorf("%s.%s is not described", path, name)
				continue
			}
			if required := strings.Contains(fmt.Sprint(schema["required"], " "), name); !required && !strings.Contains(options, "omitempty") {
				t.Errorf("%s.%s is always written and not required", path, name)
			}
			compare(path+"."+name, field.Type, of)
		}
		for name := range properties {
			if !seen[name] {
				t.Errorf("%s.%s is described and never written", path, name)
			}
		}
		if schema["additionalProperties"] != false {
			t.Errorf("%s takes other keys", path)
		}
	}
	compare("manifest", reflect.TypeFor[exporter.Manifest](), doc)
}
