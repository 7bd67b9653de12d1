// Package metric says how a metric's usage is collected from ClickHouse
// tables: it reads metrics.yaml and writes the SELECT that converts raw values
// exactly and gives usage rows.
//
// Three promises hold everywhere. A quantity is computed from integers and
// rounded once, so it is exact to the last digit (tests do the same in Go). An
// overflow is never silent: it is excluded by the columns' types or it fails
// the query. Metrics name columns, never expressions: each name is checked
// against an allow-list before it is quoted, so that a metric can read the
// tables it names and nothing else.
//
// The package performs no I/O.
package metric
