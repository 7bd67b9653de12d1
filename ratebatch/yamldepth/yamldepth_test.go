package yamldepth

import (
	"strings"
	"testing"
)

func TestCrowded(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		want int
	}{
		"as many dashes as may be": {strings.Repeat("- ", 64), 0},
		"one more":                 {"a: 1\n" + strings.Repeat("- ", 65), 2},
		"keys within keys":         {strings.Repeat("a: ", 65), 1},
		"question marks":           {strings.Repeat("?\t", 65), 1},
		"a ruler in a comment":     {"a: 1 # " + strings.Repeat("- ", 65), 0},
		"words between dashes":     {strings.Repeat("word - ", 65), 0},
		"a dash a line":            {strings.Repeat("-\n", 65), 0},
		"nothing":                  {"", 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Crowded([]byte(tt.text), 64); got != tt.want {
				t.Errorf("line %d, want %d", got, tt.want)
			}
		})
	}
}
