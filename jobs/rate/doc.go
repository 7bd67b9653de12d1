// Package rate is the main job: it rates every due period of every active scope,
// in passes of one INSERT … SELECT each, and commits them.
//
// A pass is exactly-once without transactions. Each attempt of it writes under
// a run_id of its own: first the due periods with the usage found for each,
// then the lines, then what the lines amount to, read back. Only when lines and
// usage agree period by period (rows, distinct keys, quantities, fingerprint)
// are commit rows written, and only commits make lines count. So an attempt
// that is killed anywhere leaves nothing that anybody sees, an attempt that
// ran into changing usage is void and starts again, and of two runs that race
// the one that commits a period first counts.
package rate
