package jobs

import (
	"strings"
	"testing"
)

func TestTheRunLogHoldsNoPassword(t *testing.T) {
	const secret = "s3cr3t"
	for name, tt := range map[string]struct{ in, want string }{
		"in a URL":                   {"--clickhouse=clickhouse://rater:s3cr3t@db:9000/x", "--clickhouse=clickhouse://rater:***@db:9000/x"},
		"with signs in it":           {"http://u:s3cr3t%20!x@h:8123/?a=b", "http://u:***@h:8123/?a=b"},
		"with an @ in it":            {"clickhouse://u:s3@s3cr3t@h:9000/x", "clickhouse://u:***@h:9000/x"},
		"as a query parameter":       {"http://h:8123/?user=default&password=s3cr3t&x=1", "http://h:8123/?user=***&password=***&x=1"},
		"the scheme was forgotten":   {"u:s3cr3t@h:9000", "u:***@h:9000"},
		"nothing to hide, times too": {"2026-11-01T00:00:00Z", "2026-11-01T00:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			got := withoutSecrets([]string{tt.in})[0]
			if got != tt.want || strings.Contains(got, secret) {
				t.Errorf("withoutSecrets(%q) = %q, want %q", tt.in, got, tt.want)
			}
		})
	}
}
