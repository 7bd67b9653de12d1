// Package ratebatch owns the vocabulary of rating and its arithmetic: periods,
// usage, rated lines, exact decimals, and the classes of errors that decide a
// command's exit code. It performs no I/O and never reads the clock: the same
// inputs give the same bytes, which is what lets a rerun be compared with the
// run before it.
//
// A period is never edited. Rating it again writes revision n+1 and leaves
// revision n readable, so an invoice already sent can always be explained.
package ratebatch
