package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ratebatch/ratebatch/agent/wire"
	"github.com/ratebatch/ratebatch/agent/wire/broker"
	"github.com/ratebatch/ratebatch/fixtures/simulate"
	"github.com/ratebatch/ratebatch/ratebatch"
)

// simulateKafka says where simulated records go.
type simulateKafka struct {
	brokers kafkaOptions
	topics  wire.Topics
}

// addFaultFlags adds a flag for each fault.
func addFaultFlags(f *pflag.FlagSet, cloud *simulate.Cloud) {
	x := &cloud.Faults
	f.IntVar(&x.Duplicates, "duplicates", 0, "samples of a million that are sent twice; usual: 10000")
	f.IntVar(&x.Late, "late", 0, "samples of a million that come late; usual: 10000")
	f.DurationVar(&x.LateBy, "late-by", 5*time.Hour, "how late")
	f.IntVar(&x.Missed, "missed", 0, "polls of a million that fail, the next sample covers both intervals; usual: 5000")
	f.IntVar(&x.Garbage, "garbage", 0, "garbage per million records, with --kafka only; usual: 1000")
	f.IntVar(&x.Migrations, "migrations", 0, "instances that move to another host within an interval; usual: a 20th")
	f.IntVar(&x.Resizes, "resizes", 0, "instances that change their flavor; usual: a 20th")
	f.IntVar(&x.Vanish, "vanish", 0, "hosts that fall silent for an hour; usual: a 10th")
	f.IntVar(&cloud.Originals, "originals", 0, "hosts that run the specification's original producer: no identity, no project")
}

// usualFaults sets the faults that the command line does not name.
func usualFaults(f *pflag.FlagSet, cloud *simulate.Cloud) {
	full, x := cloud.WithDefaults(), &cloud.Faults
	for _, fault := range []struct {
		flag  string
		into  *int
		usual int
	}{
		{"duplicates", &x.Duplicates, 10_000}, {"late", &x.Late, 10_000}, {"missed", &x.Missed, 5_000}, {"garbage", &x.Garbage, 1_000},
		{"migrations", &x.Migrations, max(1, full.Instances/20)}, {"resizes", &x.Resizes, max(1, full.Instances/20)}, {"vanish", &x.Vanish, max(1, full.Hosts/10)},
	} {
		if !f.Changed(fault.flag) {
			*fault.into = fault.usual
		}
	}
}

// simulatedRecords is what simulate --kafka prints.
type simulatedRecords struct {
	simulate.Sent
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
	Seconds float64   `json:"seconds"`
}

func (p *program) simulateToKafka(ctx context.Context, cloud simulate.Cloud, o simulateKafka) error {
	brokers, err := o.brokers.options(p)
	if err != nil {
		return err
	}
	client, err := brokers.Client(producing()...)
	if err != nil {
		return &ratebatch.ConfigError{Err: err}
	}
	defer client.Close()
	if err := brokers.Ping(ctx, client, 20*time.Second); broker.IsLoginFailure(err) {
		return &ratebatch.ConfigError{Err: err, Hint: "check the user, its password and the mechanism"}
	} else if err != nil {
		return &ratebatch.TryAgainError{Err: err, Hint: "check the address, TLS and the login if it stays like this"}
	}
	cloud = cloud.WithDefaults()
	expected := int64(cloud.Instances) * 3 * int64(cloud.End().Sub(cloud.Begin)/cloud.Interval)
	began := p.now()
	bar := p.progress("simulate", expected, "records")
	sent, err := cloud.Produce(ctx, client, o.topics, func(s simulate.Sent) { bar.set(min(s.Total(), expected)) })
	bar.done()
	if err != nil {
		var known *ratebatch.ConfigError
		if errors.As(err, &known) || ctx.Err() != nil {
			return err
		}
		return &ratebatch.TryAgainError{Err: fmt.Errorf("%w (after %d records)", err, sent.Total()), Hint: "the same command writes the same samples again, and they count once"}
	}
	out := simulatedRecords{sent, cloud.Begin, cloud.End(), p.now().Sub(began).Seconds()}
	return p.print(out, func() {
		fmt.Fprintf(p.stdout, "records of %d instances from %s to %s: %d of instances, %d of ports, %d of disks, %d garbage, in %.1f s\n", cloud.Instances,
			out.From.Format(time.RFC3339), out.To.Format(time.RFC3339), sent.Instances, sent.Ports, sent.Disks, sent.Garbage, out.Seconds)
	})
}

// producing are the client's settings for writing much at once. Idempotent
// writing and all replicas are its own defaults.
func producing() []kgo.Opt {
	return []kgo.Opt{
		kgo.MaxBufferedRecords(50_000), kgo.ProducerLinger(20 * time.Millisecond), kgo.ProducerBatchCompression(kgo.Lz4Compression(), kgo.NoCompression()),
		kgo.RecordDeliveryTimeout(2 * time.Minute), kgo.UnknownTopicRetries(2),
	}
}
