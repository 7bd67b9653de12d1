// Package kafka hands the records of the spools to the brokers: idempotent, all
// replicas acknowledged, zstd, keys as the specification has them. It returns
// only when every record of a call was acknowledged or something went wrong.
//
// Idempotence is the client's within one session; across sessions (a crash, a
// new client after an error) a record may be sent twice, with one identity, and
// ingest counts it once.
package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ratebatch/ratebatch/agent"
	"github.com/ratebatch/ratebatch/agent/spool"
	"github.com/ratebatch/ratebatch/agent/wire"
	"github.com/ratebatch/ratebatch/agent/wire/broker"
)

// Options of a producer.
type Options struct {
	Broker broker.Options
	Topics wire.Topics
	// Timeout is how long one call waits for the brokers; 30 s when zero.
	Timeout time.Duration
}

// Producer is an agent's way to Kafka. It may be used by one goroutine.
type Producer struct {
	opts   Options
	client *kgo.Client
}

// New checks the options; nothing is connected yet.
func New(opts Options) (*Producer, error) {
	if opts.Timeout == 0 {
		opts.Timeout = 30 * time.Second
	}
	if err := opts.Broker.Validate(); err != nil {
		return nil, err
	}
	return &Producer{opts: opts}, nil
}

// connect makes a client where there is none. Each error throws it away: a
// producer whose session the brokers refused stays refused, and a login that
// was mended is only seen by a new connection.
func (p *Producer) connect() (*kgo.Client, error) {
	if p.client != nil {
		return p.client, nil
	}
	client, err := p.opts.Broker.Client(
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerBatchCompression(kgo.ZstdCompression().WithLevel(1), kgo.GzipCompression()),
		kgo.ProducerLinger(20*time.Millisecond),
		kgo.MaxBufferedRecords(20_000),
		kgo.ProducerBatchMaxBytes(1<<20-1024),
		kgo.RequestRetries(2),
		kgo.MetadataMinAge(time.Second),
		kgo.DialTimeout(10*time.Second),
		kgo.UnknownTopicRetries(2),
		kgo.DisableClientMetrics(),
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
	)
	if err == nil {
		p.client = client
	}
	return client, err
}

func (p *Producer) topic(kind byte) (string, error) {
	switch kind {
	case agent.TopicPort:
		return p.opts.Topics.Port, nil
	case agent.TopicInstance:
		return p.opts.Topics.Instance, nil
	case agent.TopicDisk:
		return p.opts.Topics.Disk, nil
	}
	return "", fmt.Errorf("kafka: the spool holds a record of an unknown kind %q", kind)
}

// Produce sends records, in order within a key, and waits for all
// acknowledgements.
func (p *Producer) Produce(ctx context.Context, records []spool.Record) error {
	if len(records) == 0 {
		return nil
	}
	client, err := p.connect()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, p.opts.Timeout, fmt.Errorf("no acknowledgement within %s", p.opts.Timeout))
	defer cancel()
	var mu sync.Mutex
	var failure error
	failed, left := 0, len(records)
	done := make(chan struct{})
	finished := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			failed++
			if failure == nil || vague(failure) {
				failure = err
			}
		}
		if left--; left == 0 {
			close(done)
		}
	}
	for _, r := range records {
		topic, err := p.topic(r.Topic)
		if err != nil {
			finished(err)
			continue
		}
		client.Produce(ctx, &kgo.Record{Topic: topic, Key: r.Key, Value: r.Value}, func(_ *kgo.Record, err error) { finished(err) })
	}
	select {
	case <-done:
	case <-ctx.Done():
		// An idempotent client keeps what it has sent once until the brokers say
		// what became of it. Closing it gives all records back, as failed.
		p.Close()
		<-done
	}
	if failed == 0 {
		return nil
	}
	p.Close()
	if vague(failure) {
		failure = p.reason(ctx, failure)
	}
	return fmt.Errorf("%d of %d records were not acknowledged: %w", failed, len(records), p.explain(failure))
}

// vague errors say that it took too long, not what did.
func vague(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, kgo.ErrClientClosed)
}

// reason finds out what kept records waiting; the client only says for how long.
func (p *Producer) reason(ctx context.Context, failure error) error {
	waited := context.Cause(ctx)
	switch {
	case waited == nil:
		return failure
	case errors.Is(waited, context.Canceled):
		return waited // nobody wants to know
	}
	client, err := p.connect()
	if err != nil {
		return err
	}
	defer p.Close()
	if err := p.opts.Broker.Ping(context.WithoutCancel(ctx), client, 4*time.Second); err != nil {
		return err
	}
	return waited
}

// explain adds what the operator can do.
func (p *Producer) explain(err error) error {
	hint := ""
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		hint = "create the topics with 'ratebatch topics apply'"
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
		hint = "user " + p.opts.Broker.User + " may not write to the topics: 'ratebatch topics apply' sets the agents' rights"
	case broker.IsLoginFailure(err):
		hint = "check the user, the password and the mechanism"
	case errors.Is(err, kerr.MessageTooLarge):
		hint = "raise the topics' max.message.bytes to 1 MiB"
	}
	if hint == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, hint)
}

// Check connects, logs in and looks for the topics. It writes nothing.
func (p *Producer) Check(ctx context.Context) error {
	client, err := p.connect()
	if err != nil {
		return err
	}
	defer p.Close()
	if err := p.opts.Broker.Ping(ctx, client, 10*time.Second); err != nil {
		return p.explain(err)
	}
	request := kmsg.NewPtrMetadataRequest()
	for _, name := range p.opts.Topics.All() {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = kmsg.StringPtr(name)
		request.Topics = append(request.Topics, topic)
	}
	request.AllowAutoTopicCreation = false
	answer, err := request.RequestWith(ctx, client)
	if err != nil {
		return p.explain(err)
	}
	var problems []error
	for _, t := range answer.Topics {
		name := ""
		if t.Topic != nil {
			name = *t.Topic
		}
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			problems = append(problems, fmt.Errorf("topic %s: %w", strings.TrimSpace(name), p.explain(err)))
		}
	}
	return errors.Join(problems...)
}

// Close gives up the connections; the next call makes new ones.
func (p *Producer) Close() {
	if p.client != nil {
		p.client.Close()
		p.client = nil
	}
}
