package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ratebatch/ratebatch/agent/wire/broker"
	"github.com/ratebatch/ratebatch/jobs"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

type (
	kmsgCommitRequest  = kmsg.OffsetCommitRequest
	kmsgCommitResponse = kmsg.OffsetCommitResponse
)

// Job reads the topics into the raw tables.
type Job struct {
	Store    *store.Store
	Log      *slog.Logger
	Options  Options
	Now      func() time.Time
	Progress func(Result) // after each batch; may be nil

	result  Result
	retries atomic.Uint64
	kept    store.Kept // raw samples
}

const (
	pictureEvery = 10 * time.Second // how often the topics' ends are looked at
	countEvery   = 10 * time.Minute // how often arrivals are counted while following
	maxPoll      = 20_000           // records taken out of the client at once
	patience     = 20 * time.Second // for the first answer of the brokers
	maxPause     = 30 * time.Second
	grace        = 20 * time.Second // for what was read when a signal ends the run
	tick         = 200 * time.Millisecond
)

// clock tells how long things take. Job.Now is the date that data is judged by,
// which may be given and then stands still: patience measured by it never ends.
func clock() time.Time { return time.Now() } //nolint:forbidigo // timeouts

// Run drains the topics to where they end, or follows them until ctx ends. The
// result holds what was done also when an error comes with it.
func (j *Job) Run(ctx context.Context, run uuid.UUID) (Result, error) {
	j.result = Result{RunID: run, Samples: map[string]uint64{}, Losses: []store.Loss{}, Regions: []Region{}, Silent: []store.SilentHost{}}
	began := clock()
	log := j.Log
	j.Log = log.With(jobs.KeyRunID, run, jobs.KeyJob, "ingest")
	defer func() { j.Log = log }()
	if err := j.Options.Validate(); err != nil {
		return j.result, err
	}
	if err := j.prepare(ctx); err != nil {
		return j.result, err
	}
	j.Log.InfoContext(ctx, "ingest starts", "group", j.Options.Group, "topics", j.Options.Topics.All(), "follow", j.Options.Follow)
	var err error
	var missing time.Time
	for again := true; again; {
		err = j.session(ctx, run)
		switch {
		case errors.Is(err, errTopicChanged):
			missing, again = time.Time{}, true
		case errors.Is(err, errTopicMissing) && j.Options.Follow && j.result.Batches > 0:
			// It was there: whoever deleted it may be making it anew.
			if missing.IsZero() {
				missing = clock()
			}
			again = clock().Sub(missing) < j.Options.RetryFor
		default:
			again = false
		}
		if again {
			j.Log.ErrorContext(ctx, "the topics are looked at anew", "error", err)
			err = jobs.Sleep(ctx, j.Options.RetryFirst)
			again = err == nil
		}
	}
	if j.Options.Follow && ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))) {
		err = nil // that is how following ends
	}
	if err == nil {
		err = j.finish(context.WithoutCancel(ctx))
	}
	j.result.Retries = j.retries.Load()
	j.result.Seconds = clock().Sub(began).Seconds()
	j.Log.InfoContext(ctx, "ingest ends", "records", j.result.Records, "late", j.result.Late, "rejected", j.result.Rejected, "losses", len(j.result.Losses),
		"batches", j.result.Batches, "retries", j.result.Retries, "rebalances", j.result.Rebalances, "seconds", j.result.Seconds)
	if err == nil {
		err = j.result.leftOver()
	}
	return j.result, err
}

// prepare reads what the decisions on samples rest on.
func (j *Job) prepare(ctx context.Context) error {
	if err := j.Store.CheckSchema(ctx); err != nil {
		return err
	}
	var err error
	j.kept, err = j.Store.RawKept(ctx)
	return err
}

// session joins the group, reads, and leaves.
func (j *Job) session(ctx context.Context, run uuid.UUID) (err error) {
	ids := map[string]kadm.TopicID{}
	s := &session{
		job: j, run: run, ids: ids, warned: map[string]bool{}, given: map[place]bool{}, parts: map[place]*assigned{},
		decoder: newDecoder(j.Options.Topics), filling: newBatch(ids), spare: newBatch(ids), landed: make(chan error, 1),
	}
	writing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(grace, stop) })()
	s.writing = writing
	plain, err := j.Options.Broker.Client()
	if err != nil {
		return &ratebatch.ConfigError{Err: err}
	}
	defer plain.Close()
	s.admin = kadm.NewClient(plain)
	if err := j.reach(ctx, plain); err != nil {
		return err
	}
	if err := s.open(ctx); err != nil {
		return err
	}
	o := j.Options
	s.client, err = o.Broker.Client(
		kgo.ConsumerGroup(o.Group), kgo.ConsumeTopics(o.Topics.All()...), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.KeepControlRecords(),
		kgo.SessionTimeout(o.Session), kgo.HeartbeatInterval(o.Session/10), kgo.RebalanceTimeout(2*o.Session),
		kgo.FetchMaxBytes(4<<20), kgo.FetchMaxPartitionBytes(1<<20), kgo.MaxConcurrentFetches(2), kgo.FetchMaxWait(500*time.Millisecond), kgo.MetadataMaxAge(30*time.Second),
		kgo.AdjustFetchOffsetsFn(s.adjust), kgo.OnPartitionsAssigned(s.onAssigned), kgo.OnPartitionsRevoked(s.onRevoked), kgo.OnPartitionsLost(s.onLost),
	)
	if err != nil {
		return &ratebatch.ConfigError{Err: err}
	}
	err = s.loop(ctx)
	// Leaving calls onRevoked, which writes and commits what is left where the
	// way there is open; a failed run leaves that to the next one.
	s.mu.Lock()
	s.leaving = true
	if err != nil && ctx.Err() == nil {
		if s.flying != nil {
			_ = s.land()
		}
		s.filling.reset()
		clear(s.parts)
		clear(s.given)
	}
	s.mu.Unlock()
	leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	if leaveErr := s.client.LeaveGroupContext(leave); leaveErr != nil {
		j.Log.WarnContext(ctx, "leave the group", "error", leaveErr)
	}
	s.client.CloseAllowingRebalance()
	return err
}

// reach waits for the brokers' first answer.
func (j *Job) reach(ctx context.Context, client *kgo.Client) error {
	err := j.Options.Broker.Await(ctx, client, patience)
	switch {
	case err == nil, ctx.Err() != nil:
		return ctx.Err()
	case broker.IsLoginFailure(err):
		return &ratebatch.ConfigError{Err: err, Hint: "see to the user, the password and the mechanism"}
	}
	return &ratebatch.TryAgainError{Err: err, Hint: "nothing was read; run the same command again"}
}

// open looks at the topics: that they are there, and which ones they are.
func (s *session) open(ctx context.Context) error {
	var meta kadm.Metadata
	err := s.job.retry(ctx, "ask Kafka for the topics", func(ctx context.Context) (err error) {
		meta, err = s.admin.Metadata(ctx, s.job.Options.Topics.All()...) // a broker may restart at this very moment
		return err
	})
	if err != nil {
		return fmt.Errorf("kafka metadata: %w", err)
	}
	s.source = meta.Cluster + "/" + s.job.Options.Group
	var partitions []place
	for _, name := range s.job.Options.Topics.All() {
		t, ok := meta.Topics[name]
		if !ok || t.Err != nil || len(t.Partitions) == 0 {
			cause := t.Err
			if cause == nil {
				cause = errors.New("it does not exist")
			}
			return &ratebatch.ConfigError{Err: fmt.Errorf("topic %s: %w: %w", name, errTopicMissing, cause), Hint: "create the topics with 'ratebatch topics apply', and see that the Kafka user may read them"}
		}
		s.ids[name] = t.ID
		for p := range t.Partitions {
			partitions = append(partitions, place{name, p})
		}
	}
	if err := s.announce(ctx, partitions); err != nil {
		return err
	}
	s.lastLive = clock()
	return s.look(ctx)
}

// loop reads until the topics are drained to where they ended at the beginning,
// or for ever.
func (s *session) loop(ctx context.Context) error {
	o := s.job.Options
	began := clock()
	nextLook, counted := began.Add(pictureEvery), began
	placed := began     // when it was last known what to read
	gave := began       // when there was last a record, or none to wait for
	var alone time.Time // since when all that is ours is stored, and not all of the others'
	counting := make(chan error, 1)
	busy := false
	defer func() {
		if busy {
			if err := <-counting; err != nil && ctx.Err() == nil {
				s.job.Log.WarnContext(ctx, "count what arrived", "error", err)
			}
		}
	}()
	for {
		poll, cancel := context.WithTimeout(ctx, tick)
		fetches := s.client.PollRecords(poll, maxPoll)
		cancel()
		if ctx.Err() != nil {
			s.client.AllowRebalance()
			return ctx.Err()
		}
		if fetches.IsClientClosed() {
			return errors.New("the Kafka client is closed")
		}
		s.mu.Lock()
		err := s.failed // in a rebalance
		if err == nil {
			err = s.take(ctx, fetches)
		}
		now := clock()
		if err == nil && len(s.filling.spans) > 0 && (now.Sub(s.filling.began) >= o.BatchTime || s.reached(func(a *assigned) int64 { return a.next })) {
			err = s.launch()
		}
		if s.placed() {
			placed = now
		} else if err == nil && now.Sub(placed) > max(o.RetryFor, patience) {
			err = &ratebatch.TryAgainError{Err: fmt.Errorf("the consumer group %s did not say for %s what to read", o.Group, now.Sub(placed).Round(time.Second)), Hint: "what was stored is committed; run the same command again"}
		}
		if fetches.NumRecords() > 0 || s.reached(func(a *assigned) int64 { return a.next }) {
			gave = now
		} else if err == nil && !o.Follow && now.Sub(gave) > max(o.RetryFor, patience) {
			err = &ratebatch.TryAgainError{Err: fmt.Errorf("kafka gave no record for %s of partitions that are not read to their end", now.Sub(gave).Round(time.Second)), Hint: "what was stored is committed; run the same command again"}
		}
		done := false
		if err == nil && s.reached(func(a *assigned) int64 { return a.next }) {
			if err = s.flush(); err == nil && s.reached(func(a *assigned) int64 { return a.stored }) {
				if !o.Follow {
					done, err = s.whole(ctx)
				}
				switch {
				case err != nil:
				case done || o.Follow:
					err = s.drained(ctx, done)
				case alone.IsZero():
					alone = now
				case now.Sub(alone) > max(o.RetryFor, patience):
					err = &ratebatch.TryAgainError{Err: fmt.Errorf("another member of the consumer group %s has partitions and does not get on with them", o.Group), Hint: "what this run read is stored; see what the other ingest waits for"}
				}
			}
		} else {
			alone = time.Time{}
		}
		s.mu.Unlock()
		s.client.AllowRebalance()
		if err != nil || done {
			return err
		}
		if now.After(nextLook) {
			nextLook = now.Add(pictureEvery)
			if err := s.lookAgain(ctx); err != nil {
				return err
			}
		}
		if o.Follow && !busy && now.Sub(counted) >= countEvery {
			busy, counted = true, now
			s.readKept(ctx)
			go func() { counting <- s.job.Store.CountIngested(ctx) }()
		}
		select {
		case err := <-counting:
			busy = false
			if err != nil && ctx.Err() == nil {
				s.job.Log.WarnContext(ctx, "count what arrived", "error", err)
			}
		default:
		}
	}
}

// readKept follows a retention that is changed while ingest runs: a sample that
// the raw tier no longer takes would be gone without a trace.
func (s *session) readKept(ctx context.Context) {
	kept, err := s.job.Store.RawKept(ctx)
	if err != nil {
		s.job.Log.WarnContext(ctx, "read the retention of raw samples", "error", err)
		return
	}
	s.mu.Lock()
	s.job.kept = kept
	s.mu.Unlock()
}

// retry repeats what a passing trouble stopped, with growing pauses, until
// RetryFor is over. Mistakes of the configuration end it at once.
func (j *Job) retry(ctx context.Context, what string, do func(context.Context) error) error {
	began := clock()
	pause := j.Options.RetryFirst
	for {
		err := do(ctx)
		if err == nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		if !store.IsPassing(err) {
			return err
		}
		if clock().Sub(began)+pause > j.Options.RetryFor {
			return &ratebatch.TryAgainError{Err: fmt.Errorf("%s: gave up after %s: %w", what, j.Options.RetryFor, err), Hint: "no offset was committed for it, so nothing is lost: run the same command again"}
		}
		j.retries.Add(1)
		j.Log.WarnContext(ctx, "tried again", "what", what, "pause", pause, "error", err)
		if err := jobs.Sleep(ctx, pause+rand.N(pause/4+1)); err != nil {
			return err
		}
		pause = min(2*pause, maxPause)
	}
}
