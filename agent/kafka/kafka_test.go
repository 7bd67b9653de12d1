package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/ratebatch/ratebatch/agent"
	"github.com/ratebatch/ratebatch/agent/kafka"
	"github.com/ratebatch/ratebatch/agent/spool"
	"github.com/ratebatch/ratebatch/agent/wire"
	"github.com/ratebatch/ratebatch/agent/wire/broker"
	"github.com/ratebatch/ratebatch/fixtures/devkafka"
	"github.com/ratebatch/ratebatch/fixtures/kafkatest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func records(from, to int) []spool.Record {
	var out []spool.Record
	for i := from; i <= to; i++ {
		for _, topic := range []byte{agent.TopicPort, agent.TopicInstance, agent.TopicDisk} {
			out = append(out, spool.Record{Topic: topic, Key: fmt.Appendf(nil, "key-%d", i%7), Value: fmt.Appendf(nil, "%c %d", topic, i)})
		}
	}
	return out
}

func producer(t *testing.T, o kafka.Options) *kafka.Producer {
	t.Helper()
	p, err := kafka.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// consume reads n records of a topic; per key they must be in order.
func consume(t *testing.T, b *kafkatest.Broker, topic string, n int) []string {
	t.Helper()
	client := b.Client(t, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var values []string
	last := map[string]string{}
	for len(values) < n {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("after %d of %d records of %s: %v", len(values), n, topic, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if before := last[string(r.Key)]; len(before) > len(string(r.Value)) || len(before) == len(string(r.Value)) && before >= string(r.Value) {
				t.Errorf("key %s: %q after %q", r.Key, r.Value, before)
			}
			last[string(r.Key)] = string(r.Value)
			values = append(values, string(r.Value))
		})
	}
	return values
}

func TestRecordsArriveByEveryLogin(t *testing.T) {
	for _, mechanism := range append(broker.Mechanisms(), "") {
		t.Run("login "+mechanism, func(t *testing.T) {
			b := kafkatest.Start(t, kafkatest.Config{Mechanism: mechanism})
			topics := b.Topics(t, 3)
			p := producer(t, kafka.Options{Broker: b.Options, Topics: topics})
			if err := p.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := p.Produce(t.Context(), records(1, 500)); err != nil {
				t.Fatal(err)
			}
			for i, kind := range []string{"p", "i", "d"} {
				got := consume(t, b, topics.All()[i], 500)
				slices.Sort(got)
				if got = slices.Compact(got); len(got) != 500 || !strings.HasPrefix(got[0], kind+" ") {
					t.Errorf("%d distinct records, the first is %q", len(got), got[0])
				}
			}
		})
	}
}

// What reaches the broker is what exactly-once delivery rests on.
func TestRequestsAreIdempotentForAllReplicasAndCompressed(t *testing.T) {
	b := kafkatest.Start(t, kafkatest.Config{})
	topics := b.Topics(t, 1)
	var seen int // the cluster's loop writes it; Produce returns after that
	cluster := b.Own(t).Cluster()
	cluster.Control(func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		produce, ok := request.(*kmsg.ProduceRequest)
		if !ok {
			return nil, nil, false
		}
		if produce.Acks != -1 {
			t.Errorf("acks=%d", produce.Acks)
		}
		for _, topic := range produce.Topics {
			for _, partition := range topic.Partitions {
				var batch kmsg.RecordBatch
				if err := batch.ReadFrom(partition.Records); err != nil {
					t.Error(err)
				}
				seen++
				if batch.ProducerID < 0 || batch.FirstSequence < 0 || batch.Attributes&7 != 4 {
					t.Errorf("producer id %d, sequence %d, codec %d (4 is zstd)", batch.ProducerID, batch.FirstSequence, batch.Attributes&7)
				}
			}
		}
		return nil, nil, false
	})
	p := producer(t, kafka.Options{Broker: b.Options, Topics: topics})
	if err := p.Produce(t.Context(), records(1, 200)); err != nil {
		t.Fatal(err)
	}
	if seen == 0 {
		t.Error("no produce request was seen")
	}
}

func TestNoErrorStays(t *testing.T) {
	short := func(b *kafkatest.Broker, topics wire.Topics) kafka.Options {
		return kafka.Options{Broker: b.Options, Topics: topics, Timeout: 4 * time.Second}
	}
	t.Run("the broker is away and comes back", func(t *testing.T) {
		b := kafkatest.Start(t, kafkatest.Config{Keep: true})
		topics := b.Topics(t, 1)
		b.Own(t)
		p := producer(t, short(b, topics))
		if err := p.Produce(t.Context(), records(1, 3)); err != nil {
			t.Fatal(err)
		}
		b.Pause()
		err := p.Produce(t.Context(), records(4, 6))
		if err == nil || !strings.Contains(err.Error(), b.Options.Brokers[0]) {
			t.Errorf("got %v, want an error that names the broker", err)
		}
		b.Resume(t)
		if err := p.Produce(t.Context(), records(4, 6)); err != nil {
			t.Fatal(err)
		}
		consume(t, b, topics.Port, 6)
	})
	t.Run("a topic is missing and is created", func(t *testing.T) {
		b := kafkatest.Start(t, kafkatest.Config{})
		topics := wire.Topics{Port: b.Name("p"), Instance: b.Name("i"), Disk: b.Name("d")}
		p := producer(t, short(b, topics))
		for what, err := range map[string]error{"check": p.Check(t.Context()), "produce": p.Produce(t.Context(), records(1, 3))} {
			if err == nil || !strings.Contains(err.Error(), "ratebatch topics apply") {
				t.Errorf("%s: got %v", what, err)
			}
		}
		if _, err := b.Admin(t).CreateTopics(t.Context(), 1, 1, nil, topics.All()...); err != nil {
			t.Fatal(err)
		}
		if err := p.Produce(t.Context(), records(1, 3)); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("a wrong password is mended in its file", func(t *testing.T) {
		b := kafkatest.Start(t, kafkatest.Config{Mechanism: broker.ScramSHA256})
		topics := b.Topics(t, 1)
		o := short(b, topics)
		secret := o.Broker.Password
		o.Broker.Password = ""
		o.Broker.PasswordFile = write(t, "wrong-horse")
		p := producer(t, o)
		for what, err := range map[string]error{"check": p.Check(t.Context()), "produce": p.Produce(t.Context(), records(1, 3))} {
			if err == nil || strings.Contains(err.Error(), "wrong-horse") {
				t.Errorf("%s: got %v", what, err)
			}
		}
		rewrite(t, o.Broker.PasswordFile, secret)
		if err := p.Produce(t.Context(), records(1, 3)); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("the user may not write", func(t *testing.T) {
		b := kafkatest.Start(t, kafkatest.Config{Mechanism: broker.ScramSHA256, ACLs: true, Users: []devkafka.User{{Mechanism: broker.ScramSHA256, Name: "guest", Password: "guest-secret"}}})
		b.Own(t)
		topics := b.Topics(t, 1)
		o := short(b, topics)
		o.Broker.User, o.Broker.Password = "guest", "guest-secret"
		err := producer(t, o).Produce(t.Context(), records(1, 3))
		if err == nil || strings.Contains(err.Error(), "guest-secret") {
			t.Errorf("got %v", err)
		}
		t.Log(err)
	})
	t.Run("the call is cancelled", func(t *testing.T) {
		b := kafkatest.Start(t, kafkatest.Config{})
		topics := b.Topics(t, 1)
		p := producer(t, short(b, topics))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := p.Produce(ctx, records(1, 3)); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if err := p.Produce(t.Context(), records(1, 3)); err != nil {
			t.Fatal(err)
		}
	})
}

func TestOptionsAreChecked(t *testing.T) {
	if _, err := kafka.New(kafka.Options{}); err == nil || !strings.Contains(err.Error(), "no broker is named") {
		t.Errorf("got %v", err)
	}
	b := kafkatest.Start(t, kafkatest.Config{})
	p := producer(t, kafka.Options{Broker: b.Options, Topics: wire.DefaultTopics()})
	if err := p.Produce(t.Context(), []spool.Record{{Topic: 'x'}}); err == nil || !strings.Contains(err.Error(), "unknown kind") {
		t.Errorf("got %v", err)
	}
}
