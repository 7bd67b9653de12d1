package sqlshell

import (
	"strings"
	"testing"
)

func TestCutFormat(t *testing.T) {
	for name, tt := range map[string]struct{ statement, rest, format, err string }{
		"none":                     {"SELECT 1", "SELECT 1", "", ""},
		"a format we print":        {"SELECT 1 FORMAT TSV", "SELECT 1", "tsv", ""},
		"any case, any blanks":     {"SELECT 1\nformat  JSONEachRow ;", "SELECT 1", "jsonl", ""},
		"a format we do not print": {"SELECT 1 FORMAT Parquet", "", "", "FORMAT Parquet"},
		"not at the end":           {"SELECT ' FORMAT TSV ' AS x", "SELECT ' FORMAT TSV ' AS x", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			rest, format, err := cutFormat(tt.statement)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("error = %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil || rest != tt.rest || format != tt.format {
				t.Errorf("cutFormat = %q, %q, %v, want %q, %q", rest, format, err, tt.rest, tt.format)
			}
		})
	}
}
