package cloudkitty

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// Bodies of CloudKitty's API are read or refused with a message for the client.
func FuzzBody(f *testing.F) {
	for _, s := range []string{
		`{"scope_id":"pa, pb","all_scopes":0,"state":"2026-10-01T00:00:00Z"}`, `{"scope_ids":["ALL"],"start_reprocess_time":"2026-10-01","end_reprocess_time":"2026-11-01","reason":"x"}`,
		`{"active":"True"}`, `{"active":1,"active":false}`, `{"scope_id":null}`, `{"scope_id":[1]}`, `[]`, `{"nosuch":1}`, `{"scope_id":"\ud800"}`, `{"state":"2026-10-01 00:00:00+00:00"}`, `{"a`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		q := &request{Request: &http.Request{Body: io.NopCloser(strings.NewReader(text))}}
		var b struct {
			All     flag   `json:"all_scopes"`
			Active  *flag  `json:"active"`
			Scopes  texts  `json:"scope_id"`
			Several texts  `json:"scope_ids"`
			State   string `json:"state"`
			Start   string `json:"start_reprocess_time"`
			End     string `json:"end_reprocess_time"`
			Reason  string `json:"reason"`
		}
		err := q.body(&b, "all_scopes", "active", "scope_id", "scope_ids", "state", "start_reprocess_time", "end_reprocess_time", "reason")
		if err != nil {
			if f, ok := err.(*failure); !ok || f.status < 400 || f.status > 499 { //nolint:errorlint // the client gets exactly this
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		for _, name := range append(b.Scopes, b.Several...) {
			if strings.TrimSpace(name) != name || name == "" {
				t.Fatalf("scope %q of %q", name, text)
			}
		}
		if at, err := parseTime("state", b.State); err == nil && (at.Year() < 1970 || at.Year() > 2106) {
			t.Fatalf("%q is %s", b.State, at)
		}
		if out, err := json.Marshal(b); err != nil || !json.Valid(out) {
			t.Fatalf("%q: %v", out, err)
		}
	})
}

// Queries of CloudKitty's API likewise.
func FuzzQuery(f *testing.F) {
	for _, s := range []string{"filters=type:instance,project_id:pa&limit=3&offset=1", "filters=a:b:c", "filters=%00:%ff", "groupby=time-d,id&begin=2026-10-01+00:00:00%2B00:00", "limit=99999999999", "offset=-1", "begin=20261001T000000Z"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		query, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		q := &request{query: query}
		if keys, values, err := q.filters(false); err == nil && len(keys) != len(values) {
			t.Fatalf("%q: %q %q", text, keys, values)
		}
		if limit, offset, err := q.page(); err == nil && (limit < 1 || offset < 0) {
			t.Fatalf("%q: limit %d, offset %d", text, limit, offset)
		}
		_ = q.known([]string{"begin", "end"}, "filters")
		if at, err := parseTime("begin", q.get("begin")); err == nil && at.Year() < 1970 {
			t.Fatalf("%q is %s", text, at)
		}
	})
}
