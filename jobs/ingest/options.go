package ingest

import (
	"errors"
	"fmt"
	"time"

	"github.com/ratebatch/ratebatch/agent/wire"
	"github.com/ratebatch/ratebatch/agent/wire/broker"
	"github.com/ratebatch/ratebatch/ratebatch"
)

// Options of the ingest job.
type Options struct {
	Broker broker.Options
	Topics wire.Topics
	Group  string // of consumers; all ingests of one database share it
	Follow bool   // go on at the end of the topics

	BatchRecords int           // written at once, at most
	BatchBytes   int           // of records, at most: what bounds memory
	BatchTime    time.Duration // a record waits no longer to be written

	Allowance   time.Duration // how much the watermark stays behind: an agent's interval and its way to Kafka
	SilentAfter time.Duration // a host without samples for so long is silent
	RetryFor    time.Duration // how long ClickHouse or Kafka may be away before the run ends with 75
	RetryFirst  time.Duration // the first pause; it doubles up to half a minute
	Session     time.Duration // a member of the group that is silent for so long is taken for dead
}

// DefaultGroup is the consumer group where nothing else is configured.
const DefaultGroup = "ratebatch-ingest"

// DefaultOptions are those of the command without flags.
func DefaultOptions() Options {
	return Options{
		Topics: wire.DefaultTopics(), Group: DefaultGroup,
		BatchRecords: 120_000, BatchBytes: 96 << 20, BatchTime: 5 * time.Second,
		Allowance: 5 * time.Minute, SilentAfter: 15 * time.Minute, RetryFor: 15 * time.Minute, RetryFirst: time.Second, Session: 30 * time.Second,
	}
}

// Validate reports every value that cannot work.
func (o Options) Validate() error {
	errs := []error{o.Broker.Validate()}
	add := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	add(o.Group == "", "no consumer group is named")
	seen := map[string]bool{}
	for _, t := range o.Topics.All() {
		add(t == "" || seen[t], "topics %q: three different names are needed", o.Topics.All())
		seen[t] = true
	}
	add(o.BatchRecords < 1 || o.BatchRecords > maxBatchRecords, "%d records in a batch: 1 to %d", o.BatchRecords, maxBatchRecords)
	add(o.BatchBytes < 1, "%d bytes in a batch", o.BatchBytes)
	add(o.BatchTime <= 0 || o.RetryFirst <= 0 || o.RetryFor < 0 || o.Allowance < 0 || o.SilentAfter <= 0, "a time is not positive")
	add(o.Session < time.Second, "a session of %s: at least a second", o.Session)
	if err := errors.Join(errs...); err != nil {
		return &ratebatch.ConfigError{Err: err}
	}
	return nil
}

// maxBatchRecords keeps a batch within one block of the server.
const maxBatchRecords = 500_000
