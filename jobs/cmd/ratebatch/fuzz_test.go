package main

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/knadh/koanf/v2"
)

// A configuration that is accepted holds known keys only, and no secret.
func FuzzConfig(f *testing.F) {
	options := configurable(newRootCmd(&program{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard}))
	for _, s := range []string{
		"clickhouse: clickhouse://rater@db:9440/ratebatch?secure=true\nlog_format: json\nkafka: {brokers: [a:9093], user: u}\n",
		"export: {to: \"s3://x/y\", dataset: [lines, focus]}\nrate: {late: hold, wait_periods: 3}\n", "kafka:\n", "kafka: &a\n  user: x\nx: *a\n", "a.b: 1\n", "rate.late: hold\n",
		"password: x\n", "? [a]\n: b\n", "data: |\n  x\n", "!!binary x: y\n", "- a\n", "\"a\\\"b\": {c': 1}\n", "rate: {\"$[0]\": 1}\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 4000 {
			return
		}
		c := &configuration{file: "fuzz.yaml", values: koanf.New("."), source: map[string]string{}}
		if err := c.readFile(text, options); err != nil {
			if strings.TrimSpace(err.Error()) == "" {
				t.Fatalf("an error without a word about %q", text)
			}
			return
		}
		known := map[string]bool{}
		for _, o := range options {
			known[o.Key] = true
		}
		for key := range c.source {
			if !known[key] {
				t.Fatalf("key %q of %q is taken", key, text)
			}
		}
		for _, o := range options {
			if c.values.Exists(o.Key) {
				_ = try(o.flag, c.values.Get(o.Key))
			}
		}
	})
}

// Points of CloudKitty, in any of its three forms, are read or refused with
// their place.
func FuzzComparePoints(f *testing.F) {
	f.Add("a.json", []byte(`{"dataframes":[{"period":{"begin":"2026-11-01T00:00:00+00:00","end":"2026-11-01T01:00:00+00:00"},"usage":{"instance":[{"vol":{"unit":"instance","qty":1.0},"rating":{"price":0.5},"groupby":{"project_id":"pa"}}]}}],"total":1}`))
	f.Add("a.json", []byte(`{"dataframes":[{"begin":"2026-11-01T00:00:00","tenant_id":"pa","resources":[{"service":"instance","volume":"1","rating":"2e3"}]}]}`))
	f.Add("a.csv", []byte("Begin,End,Type,Qty,Price,Group By\n2026-11-01T00:00:00,x,instance,1,2,\"{'project_id': 'pa'}\"\n"))
	f.Add("a.csv", []byte("begin,metric_type,qty,rate,project_id\n2026-11-01 00:00:00,instance,1e-9,,pa\n"))
	f.Add("a.json", []byte(`{"dataframes":[{"period":{"begin":"2026-11-01T00:00:00"},"usage":{"x":[{"vol":{"qty":1e999999999},"groupby":{"project_id":"p"}}]}}]}`))
	f.Add("a.json", []byte(`{}{}{"dataframes":null}`))
	f.Fuzz(func(t *testing.T, name string, text []byte) {
		if len(text) > 10_000 {
			return
		}
		err := readPoints(name, strings.NewReader(string(text)), "project_id", func(p point) error {
			if p.begin.IsZero() && !strings.Contains(string(text), "0001") {
				t.Fatalf("a point without a time in %q", text)
			}
			// What is compared is summed and printed.
			if len(p.qty.Add(p.price).String()) > 1<<16 {
				t.Fatalf("a number of %d digits comes of %d bytes", len(p.qty.Add(p.price).String()), len(text))
			}
			return context.Cause(t.Context())
		})
		if err != nil && !strings.Contains(err.Error(), name) {
			t.Fatalf("%v does not name the file %q", err, name)
		}
	})
}
