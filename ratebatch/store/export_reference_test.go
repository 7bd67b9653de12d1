package store

import "slices"

// ColumnTexts lists the names in columns.txt.
func ColumnTexts() []string {
	var out []string
	for name := range columnMeanings() {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}
