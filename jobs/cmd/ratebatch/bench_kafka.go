package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/ratebatch/ratebatch/agent/wire"
	"github.com/ratebatch/ratebatch/agent/wire/broker"
	"github.com/ratebatch/ratebatch/fixtures/bench"
	"github.com/ratebatch/ratebatch/fixtures/devkafka"
	"github.com/ratebatch/ratebatch/fixtures/simulate"
)

// benchKafka measures the records on their way to ingest: how fast they are
// decoded, and how fast simulate writes them to a broker in this process, which
// takes its part of the processor.
func benchKafka(ctx context.Context, _ *program, _ string, size benchSize) ([]bench.Figure, error) {
	cloud := simulate.Cloud{Seed: 1, Projects: 50, Instances: 5000, Cycles: 41} // 600,000 records
	if size.hours < 48 {
		cloud.Cycles = 5
	}
	figures, err := benchDecode(cloud, size.runs)
	if err != nil {
		return nil, err
	}
	var took []time.Duration
	records := int64(0)
	for range size.runs {
		began := time.Now()
		sent, err := benchProduce(ctx, cloud)
		if err != nil {
			return nil, err
		}
		took, records = append(took, time.Since(began)), sent.Total()
	}
	median, spread := bench.Median(took)
	// 5 microseconds a record are the 200,000 records a second that are promised.
	return append(figures,
		bench.Figure{Name: "simulate_kafka_rate", Value: float64(records) / median.Seconds(), Unit: "records/s", Runs: size.runs, Spread: spread},
		bench.Figure{Name: "simulate_kafka_record", Value: float64(median.Nanoseconds()) / float64(records) / 1000, Unit: "µs/record", Limit: 5, Runs: size.runs, Spread: spread}), nil
}

// benchProduce writes the cloud's records to a new broker.
func benchProduce(ctx context.Context, cloud simulate.Cloud) (simulate.Sent, error) {
	b, err := devkafka.Start(devkafka.Options{})
	if err != nil {
		return simulate.Sent{}, err
	}
	defer b.Close()
	o := broker.Options{Brokers: []string{b.Address()}}
	client, err := o.Client(producing()...)
	if err != nil {
		return simulate.Sent{}, err
	}
	defer client.Close()
	created, err := kadm.NewClient(client).CreateTopics(ctx, 6, -1, nil, wire.DefaultTopics().All()...)
	if err == nil {
		err = created.Error()
	}
	if err != nil {
		return simulate.Sent{}, err
	}
	return cloud.Produce(ctx, client, wire.DefaultTopics(), nil)
}

// benchDecode decodes records of the three kinds, and again with encoding/json,
// run by run.
func benchDecode(cloud simulate.Cloud, runs int) ([]bench.Figure, error) {
	cloud.Cycles = 4
	var records []simulate.Record
	for r, err := range cloud.Records(wire.DefaultTopics()) {
		if err != nil {
			return nil, err
		}
		records = append(records, r)
	}
	var i, i2 wire.Instance
	var p, p2 wire.Port
	var d, d2 wire.Disk
	decode := func(port, instance, disk func([]byte) error) (time.Duration, error) {
		began := time.Now()
		for _, r := range records {
			var err error
			switch r.Topic {
			case wire.TopicPort:
				err = port(r.Value)
			case wire.TopicInstance:
				err = instance(r.Value)
			default:
				err = disk(r.Value)
			}
			if err != nil {
				return 0, fmt.Errorf("%s: %w", r.Value, err)
			}
		}
		return time.Since(began), nil
	}
	var ours, standard []time.Duration
	for range runs {
		took, err := decode(func(b []byte) error { return wire.DecodePort(b, &p) }, func(b []byte) error { return wire.DecodeInstance(b, &i) }, func(b []byte) error { return wire.DecodeDisk(b, &d) })
		if err != nil {
			return nil, err
		}
		ours = append(ours, took)
		if took, err = decode(func(b []byte) error { return json.Unmarshal(b, &p2) }, func(b []byte) error { return json.Unmarshal(b, &i2) }, func(b []byte) error { return json.Unmarshal(b, &d2) }); err != nil {
			return nil, err
		}
		standard = append(standard, took)
	}
	median, spread := bench.Median(ours)
	return []bench.Figure{
		{Name: "wire_decode_rate", Value: float64(len(records)) / median.Seconds(), Unit: "records/s", Runs: runs, Spread: spread},
		// A quarter of encoding/json's time leaves ingest its second core.
		{Name: "wire_decode_vs_json", Value: float64(median.Nanoseconds()) / float64(len(records)), Unit: "ns/record", Ratio: bench.MedianRatio(ours, standard), Limit: 0.25, Runs: runs, Spread: spread},
	}, nil
}
