// Package rate is the main job: it rates every due period of every active scope,
// in passes of one INSERT … SELECT each, and commits them.
//
// A pass is exactly-once without transactions. Each attempt of it writes under
// a run_id of its own: first the due periods with the usage found for each,
// then the lines, then what the lines amount to, read back. Commit rows are
// written only for scopes of which lines and usage agree in every period (rows,
// distinct keys, quantities, fingerprint), and only commits make lines count. So
// an attempt that is killed anywhere leaves nothing that anybody sees, a scope
// that ran into changing usage is left to the next attempt, which is about such
// scopes alone, and of two runs that race the one that commits a period first
// counts.
//
// To void the whole attempt at any difference would let one scope whose usage
// arrives all the time keep all others from being rated. A scope is the grain
// because carry-ins, discounts and charges look at nothing beyond it; within one,
// a period that differs may be what later ones rest on.
package rate
