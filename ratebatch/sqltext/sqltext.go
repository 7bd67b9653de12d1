// Package sqltext writes strings and names as ClickHouse reads them. Values go
// to the server as parameters; this is for the places that take none: names of
// tables and columns, and the folded constants of a pass.
package sqltext

import "strings"

var (
	inString = strings.NewReplacer(`\`, `\\`, `'`, `\'`, "\x00", `\0`, "\n", `\n`, "\r", `\r`, "\t", `\t`, "\b", `\b`, "\f", `\f`)
	inName   = strings.NewReplacer(`\`, `\\`, "`", "\\`")
)

// String is text as a string literal. Any text is possible, also one that is no
// UTF-8.
func String(text string) string { return "'" + inString.Replace(text) + "'" }

// Name is an identifier in backticks.
func Name(name string) string { return "`" + inName.Replace(name) + "`" }

// Table is a table's name, with its database in front or without.
func Table(name string) string {
	parts := strings.Split(name, ".")
	for i, p := range parts {
		parts[i] = Name(p)
	}
	return strings.Join(parts, ".")
}
