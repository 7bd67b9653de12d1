package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ratebatch/ratebatch/agent/wire"
	"github.com/ratebatch/ratebatch/agent/wire/broker"
	"github.com/ratebatch/ratebatch/fixtures/bench"
	"github.com/ratebatch/ratebatch/fixtures/devkafka"
	"github.com/ratebatch/ratebatch/fixtures/simulate"
	"github.com/ratebatch/ratebatch/jobs/ingest"
	"github.com/ratebatch/ratebatch/ratebatch/engine"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// benchIngest measures the way from the topics to the raw tables: a million
// records of the three kinds, read by ingest in a process of its own, so that
// its peak memory is its own. The broker runs here and the engine in a third
// process; all three share the processors. The ratio is to reading the same
// records and throwing them away.
func benchIngest(ctx context.Context, p *program, dir string, size benchSize) (figures []bench.Figure, err error) {
	cloud := simulate.Cloud{Seed: 1, Projects: 50, Instances: 8000, Cycles: 43} // 1,008,000 records
	if size.hours < 48 {
		cloud.Cycles = 5
	}
	b, err := devkafka.Start(devkafka.Options{})
	if err != nil {
		return nil, err
	}
	defer b.Close()
	o := broker.Options{Brokers: []string{b.Address()}}
	client, err := o.Client(producing()...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	created, err := kadm.NewClient(client).CreateTopics(ctx, 6, -1, nil, wire.DefaultTopics().All()...)
	if err = errors.Join(err, created.Error()); err != nil {
		return nil, err
	}
	sent, err := cloud.Produce(ctx, client, wire.DefaultTopics(), nil)
	if err != nil {
		return nil, err
	}
	records := sent.Total()
	var consumed, ingested, cpu, brokerCPU, engineCPU []time.Duration
	peak := int64(0)
	err = benchDatabase(ctx, p, dir, func(e *engine.Engine, s *store.Store) error {
		for run := range size.runs {
			took, err := consumeAll(ctx, o, records)
			if err != nil {
				return err
			}
			consumed = append(consumed, took)
			for _, table := range []string{"port_samples", "instance_samples", "disk_samples", "ingest_counts", "hosts", "instances"} {
				if err := e.Conn().Exec(ctx, "TRUNCATE TABLE "+table); err != nil {
					return err
				}
			}
			others, err := processesCPU(filepath.Join(dir, "data"))
			if err != nil {
				return err
			}
			result, used, rss, err := runIngest(ctx, o, filepath.Join(dir, "data"), e.Database(), fmt.Sprintf("bench-%d", run))
			if err != nil {
				return err
			}
			if int64(result.Records) != records || result.Rejected != 0 {
				return fmt.Errorf("ingest read %d records and rejected %d, of %d", result.Records, result.Rejected, records)
			}
			then, err := processesCPU(filepath.Join(dir, "data"))
			if err != nil {
				return err
			}
			cpu, brokerCPU, engineCPU = append(cpu, used), append(brokerCPU, then[0]-others[0]), append(engineCPU, then[1]-others[1])
			ingested, peak = append(ingested, time.Duration(result.Seconds*float64(time.Second))), max(peak, rss)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	median, spread := bench.Median(ingested)
	perRecord := func(name, unit string, of []time.Duration) bench.Figure {
		median, spread := bench.Median(of)
		return bench.Figure{Name: name, Value: float64(median.Microseconds()) / float64(records), Unit: "µs/record, of " + unit, Runs: len(of), Spread: spread}
	}
	limit := 1e6 / 150_000.0 // 150,000 records a second on two cores
	if size.hours < 48 {
		limit = 0 // joining the group takes longer than so few records
	}
	return []bench.Figure{
		{Name: "ingest_rate", Value: float64(records) / median.Seconds(), Unit: "records/s", Runs: len(ingested), Spread: spread},
		{Name: "ingest_record", Value: float64(median.Microseconds()) / float64(records), Unit: "µs/record", Limit: limit, Runs: len(ingested), Spread: spread},
		perRecord("ingest_cpu", "ingest's own process", cpu),
		perRecord("ingest_engine_cpu", "the engine", engineCPU),
		perRecord("ingest_broker_cpu", "the broker, which a real one has elsewhere", brokerCPU),
		{Name: "ingest_vs_consume", Value: median.Seconds(), Unit: "s", Ratio: bench.MedianRatio(ingested, consumed), Runs: len(ingested), Spread: spread},
		{Name: "ingest_peak_memory", Value: float64(peak) / 1024, Unit: "MiB", Limit: 400, Runs: len(ingested)},
	}, nil
}

// processesCPU is what the broker, which runs in this process, and the engine
// have used of the processors.
func processesCPU(dataDir string) (used [2]time.Duration, err error) {
	pid, err := enginePID(dataDir)
	if err != nil {
		return used, err
	}
	for i, pid := range []int{os.Getpid(), pid} {
		if used[i], err = processCPU(pid); err != nil {
			return used, err
		}
	}
	return used, nil
}

// consumeAll reads every record once and does nothing with it.
func consumeAll(ctx context.Context, o broker.Options, records int64) (time.Duration, error) {
	client, err := o.Client(kgo.ConsumeTopics(wire.DefaultTopics().All()...), kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return 0, err
	}
	defer client.Close()
	began := time.Now()
	for n := int64(0); n < records; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return 0, err
		}
		n += int64(fetches.NumRecords())
	}
	return time.Since(began), nil
}

// runIngest runs this program's ingest and gives its result, what it used of the
// processors, and its peak memory in KiB.
func runIngest(ctx context.Context, o broker.Options, data, database, group string) (ingest.Result, time.Duration, int64, error) {
	var result ingest.Result
	var log bytes.Buffer
	run, err := runSelf(ctx, &log, "--data", data, "--database", database, "--output", "json", "ingest", "--kafka", o.Brokers[0], "--group", group)
	if err != nil {
		return result, 0, 0, fmt.Errorf("%w: %s", err, log.String())
	}
	return result, run.cpu, run.peak, json.Unmarshal(run.stdout, &result)
}
