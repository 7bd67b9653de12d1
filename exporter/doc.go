// Package exporter turns rated lines into files for finance: Parquet, Arrow and
// CSV, in datasets whose columns are declared here, with a manifest that says
// what a delivery holds.
//
// Three rules hold for every export. The same state gives the same bytes, so a
// repeated export can be compared with the one before it; files therefore name
// no run and no moment of writing. An export reads its commits once and its
// lines by them, and stops when a commit's line count, key digest or total
// differs from the rows that came. The manifest is written last: a reader that
// follows it never sees half a delivery.
package exporter
