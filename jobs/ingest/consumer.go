package ingest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/ratebatch/ratebatch/agent/wire/broker"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// errTopicChanged ends a session whose topics are no longer what they were: the
// client cannot go on with a topic that was made anew under the same name.
var errTopicChanged = errors.New("a topic is no longer the one that it was")

// errTopicMissing says that a topic is not there, or not for us.
var errTopicMissing = errors.New("it cannot be read")

// assigned is a partition that this member reads.
type assigned struct {
	next    int64           // offset of the next record to come
	stored  int64           // everything below it is stored and committed
	topicID kadm.TopicID    // of the topic it belongs to
	regions map[string]bool // that records of it were of
	drained time.Time       // see store.Progress
	written store.Progress  // as it stands in ingest_progress
}

// picture is where the topics ended at a moment.
type picture struct {
	at   time.Time
	ends map[place]int64
}

// session is one membership in the consumer group, from joining to leaving.
type session struct {
	job    *Job
	run    uuid.UUID
	source string
	client *kgo.Client
	admin  *kadm.Client
	ids    map[string]kadm.TopicID
	left   bool            // a topic that is no longer read holds the watermark up
	warned map[string]bool // of topics and sources

	// mu guards what follows: the callbacks of a rebalance come from elsewhere.
	mu       sync.Mutex
	given    map[place]bool // what the group says is ours; in parts once it is known from where on
	parts    map[place]*assigned
	joined   bool
	decoder  *decoder
	filling  *batch
	flying   *batch // is being written; nil: none
	spare    *batch
	landed   chan error      // one result per flying batch
	failed   error           // of a batch: what it held is read again by another session, and this one writes nothing more
	writing  context.Context // outlives the run's by some seconds, so that what was read is written when a signal ends it
	leaving  bool
	picture  picture
	lastLive time.Time // the brokers were heard of
	asked    time.Time // when the other members' progress was last looked at
}

// startBatch begins to fill a batch whose samples are judged by a date.
func (s *session) startBatch(now time.Time) {
	b := s.filling
	b.began, b.now = clock(), now
	b.cutoff = s.job.kept.LateBefore(now)
}

// adjust decides where newly assigned partitions are read from. What the group
// committed counts, unless it lies outside of what the topic holds: that is a
// loss, and it is noted before anything is read.
func (s *session) adjust(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	topics := slices.Sorted(maps.Keys(offsets))
	starts, err := s.admin.ListStartOffsets(ctx, topics...)
	if err != nil {
		return nil, err
	}
	ends, err := s.admin.ListEndOffsets(ctx, topics...)
	if err != nil {
		return nil, err
	}
	known, err := s.job.Store.IngestProgress(ctx, s.source)
	if err != nil {
		return nil, err
	}
	before := map[place]store.Progress{}
	for _, p := range known {
		before[place{p.Topic, p.Partition}] = p
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for topic, partitions := range offsets {
		for partition, committed := range partitions {
			at := place{topic, partition}
			start, okStart := starts.Lookup(topic, partition)
			end, okEnd := ends.Lookup(topic, partition)
			if !okStart || !okEnd || start.Err != nil || end.Err != nil {
				return nil, fmt.Errorf("offsets of %s/%d: %w", topic, partition, errors.Join(start.Err, end.Err, errOf(!okStart || !okEnd, "not listed")))
			}
			next, lost := from(committed.EpochOffset().Offset, start.Offset, end.Offset, before[at], s.ids[topic])
			if lost != nil {
				lost.Topic, lost.Partition = topic, partition
				if err := s.lose(ctx, *lost); err != nil {
					return nil, err
				}
			}
			partitions[partition] = kgo.NewOffset().At(next)
			a := &assigned{next: next, stored: next, topicID: s.ids[topic], regions: map[string]bool{}, drained: time.Unix(0, 0), written: before[at]}
			if b, ok := before[at]; ok && lost == nil {
				a.drained = b.DrainedAt
			}
			for _, r := range before[at].Regions {
				a.regions[r] = true
			}
			s.parts[at] = a
			s.job.result.Total += uint64(max(0, end.Offset-next))
		}
	}
	return offsets, nil
}

func errOf(is bool, text string) error {
	if is {
		return errors.New(text)
	}
	return nil
}

// from gives the offset to read from, and what was lost before it. committed is
// negative where the group has no offset.
func from(committed, start, end int64, before store.Progress, id kadm.TopicID) (int64, *store.Loss) {
	expected := committed
	other := before.TopicID != uuid.Nil && before.TopicID != uuid.UUID(id)
	if committed < 0 && before.TopicID != uuid.Nil {
		expected = before.NextOffset // the group forgot, we did not
	}
	switch {
	case other:
		return start, &store.Loss{Cause: "recreated", FromOffset: max(expected, 0), ToOffset: -1,
			Detail: "the topic was deleted and made anew; what had not been read of the old one is gone"}
	case expected >= 0 && expected < start:
		return start, &store.Loss{Cause: "expired", FromOffset: expected, ToOffset: start,
			Detail: fmt.Sprintf("%d records were deleted before they were read: the topic keeps them for too short a time, or ingest was away for too long", start-expected)}
	case committed > end:
		return start, &store.Loss{Cause: "truncated", FromOffset: end, ToOffset: committed,
			Detail: fmt.Sprintf("the group had read up to %d, the topic ends at %d: it was cut or made anew; it is read again from its beginning", committed, end)}
	case committed < 0:
		return start, nil
	}
	return committed, nil
}

// lose notes a loss, loudly.
func (s *session) lose(ctx context.Context, x store.Loss) error {
	x.Source, x.RunID, x.FoundAt = s.source, s.run, s.job.Now()
	if id, ok := s.ids[x.Topic]; ok {
		x.TopicID = uuid.UUID(id)
	}
	s.job.Log.ErrorContext(ctx, "records are lost in Kafka", "topic", x.Topic, "partition", x.Partition, "cause", x.Cause, "from_offset", x.FromOffset, "to_offset", x.ToOffset, "detail", x.Detail)
	s.job.result.Losses = append(s.job.result.Losses, x)
	return s.job.Store.AddLoss(ctx, x)
}

// onAssigned notes what the group has given us. Where to read it from is looked
// up after that (adjust), which takes a while on a busy database.
func (s *session) onAssigned(_ context.Context, _ *kgo.Client, given map[string][]int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.joined = true
	for topic, list := range given {
		for _, p := range list {
			s.given[place{topic, p}] = true
		}
	}
}

// onRevoked writes and commits what was read before another member goes on with
// it. Where that does not work the session ends (failed): a rebalance, which
// often takes nothing from us, must not read on behind records that were
// dropped. Whoever has the partitions next reads them again, which counts once.
func (s *session) onRevoked(ctx context.Context, _ *kgo.Client, revoked map[string][]int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.leaving {
		s.job.result.Rebalances++
	}
	if err := s.flush(); err != nil {
		s.job.Log.WarnContext(ctx, "what was read and not written is left to the next reader", "error", err)
	} else if err := s.note(s.writing); err != nil {
		s.job.Log.WarnContext(ctx, "progress before a rebalance", "error", err)
	}
	s.forget(revoked)
}

func (s *session) onLost(ctx context.Context, _ *kgo.Client, lost map[string][]int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.job.result.Rebalances++
	s.job.Log.WarnContext(ctx, "the group took this member for dead; what was not committed is read again", "partitions", lost)
	s.forget(lost)
}

func (s *session) forget(partitions map[string][]int32) {
	for topic, list := range partitions {
		for _, p := range list {
			delete(s.parts, place{topic, p})
			delete(s.given, place{topic, p})
		}
	}
}

// take puts what was polled into batches and writes those that are full.
func (s *session) take(ctx context.Context, fetches kgo.Fetches) error {
	var failed error
	fetches.EachError(func(topic string, partition int32, err error) {
		if failed == nil {
			failed = s.fetchError(ctx, topic, partition, err)
		}
	})
	if failed != nil {
		return failed
	}
	now, heard := s.job.Now(), clock()
	for records := fetches.RecordIter(); !records.Done(); {
		r := records.Next()
		a := s.parts[place{r.Topic, r.Partition}]
		if a == nil {
			continue // no longer ours: whoever has it reads it
		}
		if r.Offset > a.next {
			// The topics are neither compacted nor transactional: a hole is a loss.
			lost := store.Loss{Topic: r.Topic, Partition: r.Partition, Cause: "expired", FromOffset: a.next, ToOffset: r.Offset,
				Detail: fmt.Sprintf("%d records were deleted while they waited to be read: the topic keeps them for too short a time", r.Offset-a.next)}
			if err := s.lose(ctx, lost); err != nil {
				return err
			}
		}
		from := a.next
		a.next = r.Offset + 1
		s.lastLive = heard
		if s.filling.records == 0 {
			s.startBatch(now)
		}
		if in := s.decoder.add(s.filling, r); in.of != a { // new, or of an earlier time that the partition was ours
			*in = span{first: r.Offset, next: r.Offset + 1, of: a, from: from}
		}
		if s.filling.records >= s.job.Options.BatchRecords || s.filling.bytes >= s.job.Options.BatchBytes {
			if err := s.launch(); err != nil {
				return err
			}
		}
	}
	return nil
}

// fetchError says what an error of a poll means. Those that pass are nil.
func (s *session) fetchError(ctx context.Context, topic string, partition int32, err error) error {
	var loss *kgo.ErrDataLoss
	var group *kgo.ErrGroupSession
	switch {
	case ctx.Err() != nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return nil
	case errors.As(err, &loss):
		if a := s.parts[place{topic, partition}]; a != nil {
			// What was read of the end that was cut off is not what comes at its
			// offsets now: they are not stored.
			if err := s.flush(); err != nil {
				return err
			}
			a.next, a.stored = loss.ResetTo, loss.ResetTo
		}
		return s.lose(ctx, store.Loss{Topic: topic, Partition: partition, Cause: "truncated", FromOffset: loss.ResetTo, ToOffset: loss.ConsumedTo, Detail: err.Error()})
	case errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.InconsistentTopicID):
		return fmt.Errorf("%s/%d: %w: %w", topic, partition, errTopicChanged, err)
	case broker.IsLoginFailure(err), errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.GroupAuthorizationFailed):
		return &ratebatch.ConfigError{Err: fmt.Errorf("read %s: %w", topic, err), Hint: "the Kafka user needs read on the topics and on the group: see 'ratebatch topics apply'"}
	case errors.Is(err, kerr.InvalidSessionTimeout):
		return &ratebatch.ConfigError{Err: fmt.Errorf("a session of %s: %w", s.job.Options.Session, err), Hint: "the brokers' group.min.session.timeout.ms and group.max.session.timeout.ms bound --session"}
	case errors.As(err, &group):
		s.job.Log.WarnContext(ctx, "consumer group", "group", s.job.Options.Group, "error", err)
	default:
		s.job.Log.WarnContext(ctx, "fetch", "topic", topic, "partition", partition, "error", err)
	}
	return nil
}

// launch hands the batch over to be written while the next one is filled. It
// waits for the one before.
func (s *session) launch() error {
	if err := s.land(); err != nil {
		return err
	}
	b := s.filling
	offsets := map[string]map[int32]kgo.EpochOffset{}
	for at, x := range b.spans {
		a := s.parts[at]
		if a == nil || a != x.of {
			continue // lost since: it is stored, and how far it is read is for others to say
		}
		if x.from > a.stored {
			s.failed = fmt.Errorf("%s/%d: the batch goes on at offset %d and only what lies below %d is stored: it is not committed, the records are read again", at.topic, at.partition, x.from, a.stored)
			return s.failed
		}
		if offsets[at.topic] == nil {
			offsets[at.topic] = map[int32]kgo.EpochOffset{}
		}
		offsets[at.topic][at.partition] = kgo.EpochOffset{Epoch: -1, Offset: x.next}
	}
	if s.meet(b.regions) {
		// Of a region that it is known to bring in the watermark counts, and not the
		// newest sample: that has to be known before there is one.
		if err := s.note(s.writing); err != nil {
			s.failed = err
			return err
		}
	}
	s.flying, s.filling, s.spare = b, s.spare, nil
	go func() { s.landed <- s.write(s.writing, b, offsets) }()
	return nil
}

// meet notes which regions records of our partitions are of, and says whether one
// is new to its partition.
func (s *session) meet(regions map[string]map[place]bool) bool {
	met := false
	for region, places := range regions {
		for at := range places {
			if a := s.parts[at]; a != nil && !a.regions[region] {
				a.regions[region], met = true, true
			}
		}
	}
	return met
}

// land waits for the batch that is being written and commits it. After one that
// failed no other is written: its offsets would speak for the failed one's, too.
func (s *session) land() error {
	if b := s.flying; b != nil {
		err := <-s.landed
		s.flying = nil
		if err == nil {
			s.count(b)
		} else {
			s.failed = err
		}
		b.reset()
		s.spare = b
	}
	return s.failed
}

// flush writes and commits all that was read.
func (s *session) flush() error {
	if len(s.filling.spans) > 0 {
		if err := s.launch(); err != nil {
			return err
		}
	}
	return s.land()
}

// offsets are the places up to which our partitions are stored.
func (s *session) offsets() map[string]map[int32]kgo.EpochOffset {
	out := map[string]map[int32]kgo.EpochOffset{}
	for at, a := range s.parts {
		if out[at.topic] == nil {
			out[at.topic] = map[int32]kgo.EpochOffset{}
		}
		out[at.topic][at.partition] = kgo.EpochOffset{Epoch: -1, Offset: a.stored}
	}
	return out
}

// count takes a batch that is stored and committed into the figures.
func (s *session) count(b *batch) {
	r := &s.job.result
	r.Records += uint64(b.records)
	r.Samples["port"] += uint64(b.ports.Rows())
	r.Samples["instance"] += uint64(b.instances.Rows())
	r.Samples["disk"] += uint64(b.disks.Rows())
	r.Late += uint64(len(b.late))
	r.Rejected += uint64(len(b.rejected))
	r.Batches++
	for at, x := range b.spans {
		if a := s.parts[at]; a != nil && a == x.of {
			a.stored = max(a.stored, x.next)
		}
	}
	if s.job.Progress != nil {
		s.job.Progress(*r)
	}
}

// write stores a batch and then commits its offsets. Each table is written
// again until it takes the rows; the token keeps a repetition from counting.
func (s *session) write(ctx context.Context, b *batch, offsets map[string]map[int32]kgo.EpochOffset) error {
	db := s.job.Store
	group, inner := errgroup.WithContext(ctx)
	store := func(table string, send func(context.Context, string) error) {
		group.Go(func() error {
			token := b.token(table)
			return s.job.retry(inner, "write to "+table, func(ctx context.Context) error { return send(ctx, token) })
		})
	}
	store("port_samples", func(ctx context.Context, token string) error { return db.SendPorts(ctx, b.ports, token) })
	store("instance_samples", func(ctx context.Context, token string) error { return db.SendInstances(ctx, b.instances, token) })
	store("disk_samples", func(ctx context.Context, token string) error { return db.SendDisks(ctx, b.disks, token) })
	store("late_samples", func(ctx context.Context, token string) error { return db.InsertLate(ctx, b.late, token) })
	store("rejected_records", func(ctx context.Context, token string) error { return db.InsertRejected(ctx, b.rejected, token) })
	if err := group.Wait(); err != nil {
		return err
	}
	if len(offsets) == 0 {
		return nil
	}
	return s.commit(ctx, offsets)
}

// commit tells the group how far it is read. A group that no longer knows us
// gives the partitions to another member, which reads again what we stored: it
// counts once, so that is no error.
func (s *session) commit(ctx context.Context, offsets map[string]map[int32]kgo.EpochOffset) error {
	return s.job.retry(ctx, "commit offsets", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		var failed error
		client := s.client
		client.CommitOffsetsSync(ctx, offsets, func(_ *kgo.Client, _ *kmsgCommitRequest, response *kmsgCommitResponse, err error) {
			failed = err
			if response == nil {
				return
			}
			for _, t := range response.Topics {
				for _, p := range t.Partitions {
					if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
						failed = errors.Join(failed, fmt.Errorf("%s/%d: %w", t.Topic, p.Partition, err))
					}
				}
			}
		})
		switch {
		case failed == nil:
			return nil
		case errors.Is(failed, kerr.RebalanceInProgress), errors.Is(failed, kerr.IllegalGeneration), errors.Is(failed, kerr.UnknownMemberID), errors.Is(failed, kerr.FencedInstanceID),
			errors.Is(failed, kerr.UnknownTopicOrPartition), errors.Is(failed, kerr.UnknownTopicID):
			s.job.Log.WarnContext(ctx, "offsets were not committed; the records are stored and will be read once more", "error", failed)
			return nil
		case errors.Is(failed, kerr.GroupAuthorizationFailed), errors.Is(failed, kerr.TopicAuthorizationFailed):
			return &ratebatch.ConfigError{Err: failed, Hint: "the Kafka user needs read on the topics and on the group: see 'ratebatch topics apply'"}
		}
		return &ratebatch.TryAgainError{Err: fmt.Errorf("commit offsets: %w", failed), Hint: "the records are stored; they will be read once more and count once"}
	})
}
