package exporter

import (
	"bytes"
	"testing"
)

// A manifest is read from a place that others write to: what is none is refused,
// and what is one reads the same again after it was written.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"manifest_version":1,"dataset":"lines","delivery":"d","month":"2026-11","files":[{"path":"delivery=d/a.parquet","rows":1,"bytes":2,"sha256":"00","partition":{"day":"2026-11-01"}}]}`))
	f.Add([]byte(`{"manifest_version":1,"dataset":"x","delivery":"y","state":{"plans":null},"corrections":[{"month":"2026-10","totals":{"EUR":"1.5"}}]}`))
	f.Add([]byte(`{"manifest_version":99}`))
	f.Add([]byte(`{"manifest_version":1,"dataset":"lines","delivery":"d"} trailing`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := parseManifest(text)
		if err != nil {
			return
		}
		first, err := m.encode()
		if err != nil {
			t.Fatalf("%q is a manifest that cannot be written: %v", text, err)
		}
		again, err := parseManifest(first)
		if err != nil {
			t.Fatalf("%q is written as %q, which is none: %v", text, first, err)
		}
		second, err := again.encode()
		if err != nil || !bytes.Equal(first, second) {
			t.Fatalf("%q, written and read, is %q (%v)", first, second, err)
		}
	})
}
