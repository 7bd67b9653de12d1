package agent

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/ratebatch/ratebatch/agent/clock"
	"github.com/ratebatch/ratebatch/agent/spool"
)

// Producer hands records to Kafka. Produce returns nil once the brokers have
// acknowledged each of them; after an error it may be called again with the
// same ones.
type Producer interface {
	Produce(ctx context.Context, records []spool.Record) error
}

// Publisher empties the spools of all hosts into Kafka, the oldest batch of
// each first. A batch leaves its spool when all its records are acknowledged.
// No error stays: whatever it was, the same batch is tried again, at least
// every maxPause, because only Kafka's operator can know when it is mended.
type Publisher struct {
	PublisherOptions
	wake  chan struct{}
	mu    sync.Mutex
	alive clock.Moment
}

// PublisherOptions say from where to where.
type PublisherOptions struct {
	Spools   []*spool.Spool
	Former   []*spool.Spool // of hosts that are metered no longer: nothing is added to them, and they are closed when they are empty
	Producer Producer
	Clock    func() clock.Moment
	Metrics  *Metrics
	Log      *slog.Logger
}

const (
	maxPause = 30 * time.Second
	// attempt bounds one try of a round, so that a broker which accepts and never
	// answers shows up as an error.
	attempt = time.Minute
	// roundBytes bounds what is in memory of the spools at a time.
	roundBytes = 4 << 20
)

// NewPublisher gives one that Wake may be called on.
func NewPublisher(opts PublisherOptions) *Publisher {
	return &Publisher{PublisherOptions: opts, wake: make(chan struct{}, 1), alive: opts.Clock()}
}

// Wake says that a spool got records.
func (p *Publisher) Wake() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Run publishes until ctx is done.
func (p *Publisher) Run(ctx context.Context) {
	pause := time.Second
	var failing clock.Moment // since when, zero if it works
	var said clock.Moment
	for ctx.Err() == nil {
		p.tick()
		sent, err := p.round(ctx)
		now := p.Clock()
		switch {
		case err != nil && ctx.Err() != nil:
			return
		case err != nil:
			if failing == (clock.Moment{}) {
				failing = now
			}
			// Once at first and then every ten minutes: an outage must not fill the log.
			if said == (clock.Moment{}) || clock.Elapsed(said, now) >= 10*time.Minute {
				said = now
				p.Log.ErrorContext(ctx, "records cannot be delivered; the spool keeps them", "error", err, "failing_for", clock.Elapsed(failing, now).Round(time.Second))
			}
			p.Metrics.delivery(0, err)
			sleep(ctx, pause/2+rand.N(pause/2))
			pause = min(2*pause, maxPause)
			continue
		case failing != (clock.Moment{}) && sent > 0:
			p.Log.InfoContext(ctx, "records are delivered again", "failed_for", clock.Elapsed(failing, now).Round(time.Second))
			failing, said = clock.Moment{}, clock.Moment{}
		}
		pause = time.Second
		if sent > 0 {
			p.Metrics.delivery(sent, nil)
			continue
		}
		timer := time.NewTimer(maxPause) // what is too old is dropped though nothing new comes
		select {
		case <-ctx.Done():
		case <-p.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// Drain publishes until the spools are empty or something fails.
func (p *Publisher) Drain(ctx context.Context) error {
	for {
		sent, err := p.round(ctx)
		if err != nil || sent == 0 {
			return err
		}
		p.Metrics.delivery(sent, nil)
	}
}

// round sends the oldest batch of each spool, as many as fit into memory, and
// says how many records were acknowledged. The spools take turns at being first.
func (p *Publisher) round(ctx context.Context) (sent int, err error) {
	type piece struct {
		spool  *spool.Spool
		number uint64
	}
	var pieces []piece
	var records []spool.Record
	flush := func() error {
		if len(records) == 0 {
			return nil
		}
		limit, cancel := context.WithTimeout(ctx, attempt)
		defer cancel()
		if err := p.Producer.Produce(limit, records); err != nil {
			return err
		}
		for _, x := range pieces {
			if err := x.spool.Done(x.number); err != nil {
				return err
			}
		}
		sent += len(records)
		pieces, records = pieces[:0], records[:0]
		return nil
	}
	bytes := 0
	var trouble error
	for i, s := range slices.Concat(p.Spools, p.Former) {
		batch, ok, err := s.Next(ctx)
		if err != nil {
			trouble = err // one host's disk must not hold up the others
			continue
		}
		if !ok {
			if i >= len(p.Spools) {
				p.Former = slices.DeleteFunc(p.Former, func(f *spool.Spool) bool { return f == s })
				trouble = errors.Join(trouble, s.Close())
			}
			continue
		}
		pieces = append(pieces, piece{s, batch.Number})
		records = append(records, batch.Records...)
		for _, r := range batch.Records {
			bytes += len(r.Key) + len(r.Value)
		}
		if bytes >= roundBytes {
			bytes = 0
			if err := flush(); err != nil {
				return sent, err
			}
		}
	}
	if err := flush(); err != nil {
		return sent, err
	}
	if sent == 0 {
		return 0, trouble
	}
	return sent, nil
}

func (p *Publisher) tick() {
	now := p.Clock()
	p.mu.Lock()
	p.alive = now
	p.mu.Unlock()
}

// Health says since when the loop has been silent.
func (p *Publisher) Health() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return clock.Elapsed(p.alive, p.Clock())
}
