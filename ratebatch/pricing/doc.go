// Package pricing turns folded prices into the SQL of a pass.
//
// Package hashmap says what a price is; for a fixed combination of metric,
// scope, rule-field values and validity window it is a step function of the
// quantity, a·qty + b between levels. This package writes those coefficients
// as constants into an expression over the usage rows, so that ClickHouse does
// nothing but find the coefficient, multiply exactly and round half-even once.
//
// Two things can never happen silently. A product never overflows: every
// coefficient is checked, in exact integers, against the largest quantity seen
// for it, and the statement throws if a larger one turns up. A combination that
// was not folded is never priced 0: the statement throws on it, the attempt is
// void and the pass starts again with the usage as it is now. What SQL cannot
// hold exactly is left out of the statement and priced in Go by the same
// evaluator (Go coefficients).
//
// The arithmetic and its measured cost: an Int128 product with one Int128
// division where the numbers fit, else an Int256 product divided by a power of
// ten through a reciprocal multiplication and a correction of at most one.
package pricing
