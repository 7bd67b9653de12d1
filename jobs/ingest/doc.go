// Package ingest is the job that brings the agents' records from Kafka into
// ClickHouse: it reads the three topics as a member of a consumer group, turns
// records into samples and writes them to the raw tables. It drains the topics
// to where they end and exits, or follows them.
//
// # Nothing is lost
//
// Offsets are committed only after the samples are stored (async_insert=0: an
// acknowledged insert is on disk). A crash in between means that records are
// read again, never that they are skipped. A record that does not decode goes to
// rejected_records with its place and the reason; a sample so old that the tiers
// would no longer take it up goes to late_samples; both are part of what is
// stored before the commit. What Kafka itself no longer holds when ingest comes
// for it is noted in ingest_losses, logged and makes the run exit 3.
//
// # Nothing counts twice
//
// Exactly once rests on the samples' identity, not on the inserts: the raw
// tables are ReplacingMergeTrees sorted by it, and whatever reads them drops
// repeats (store/queries/tier_*.sql). It has to, because an agent may send a
// record twice, and because after a crash or a rebalance the same records come
// in other blocks. The deduplication token (a digest of the offset ranges in a
// block) only saves work: an insert whose answer was lost is repeated as the
// very same block, and the server drops it.
//
// # How far it is complete
//
// A partition is drained at T if all that it held at T is stored. The watermark
// of a region is the least such T over all partitions of all its sources, less
// an allowance for what agents have not sent yet. It says nothing about agents
// that are cut off: silent hosts are listed, not waited for.
package ingest
