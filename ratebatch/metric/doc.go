// Package metric says how a metric's usage is collected from ClickHouse
// tables: it reads metrics.yaml, converts raw values exactly, and writes the
// SELECT that gives usage rows.
//
// Three promises hold everywhere. A quantity is computed from integers and
// rounded once, so the SQL and the Go conversion agree to the last digit. An
// overflow is never silent: it is excluded by the columns' types or it fails
// the query. Metrics name columns, never expressions: each name is checked
// against an allow-list before it is quoted, so that a metric can read the
// tables it names and nothing else.
//
// The package performs no I/O.
package metric
