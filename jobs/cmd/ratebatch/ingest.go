package main

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/jobs"
	"github.com/ratebatch/ratebatch/jobs/ingest"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

func newIngestCmd(p *program) *cobra.Command {
	var kafka kafkaOptions
	o := ingest.DefaultOptions()
	cmd := &cobra.Command{
		Use:   "ingest",
		Short: "Bring the agents' records from Kafka into ClickHouse",
		Long: `Ingest reads the three topics up to where they end, writes the samples, and exits;
with --follow it goes on until it is stopped, and exits 0 then. Offsets are
committed only after the samples are stored, so a crash anywhere loses nothing, and
a record that comes twice counts once. Several ingests share the partitions.

Records that do not decode go to the table rejected_records with the reason.
Samples that are too old for the tiers go to late_samples; 'ratebatch rollup
--include-late' takes them up. What Kafka had deleted before it was read is listed
by 'ratebatch status'. Each region's watermark follows what is drained.

Exit 3 says that the run is done, with rejected records or with records that Kafka
had lost. While ClickHouse or Kafka is away the run waits for --retry-for, then
exits 75; the next run goes on where it ended.

` + exitCodesHelp,
		Example: `  ratebatch ingest --kafka broker1:9092
  ratebatch ingest --follow --kafka broker1:9093 --kafka-ca ca.pem --kafka-user ingest --kafka-password-file ingest.secret`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			brokers, err := kafka.options(p)
			if err != nil {
				return err
			}
			o.Broker = brokers
			if err := o.Validate(); err != nil {
				return err
			}
			return p.withStore(cmd.Context(), func(ctx context.Context, s *store.Store) error {
				return p.ingest(ctx, &ingest.Job{Store: s, Log: p.log, Options: o, Now: p.now})
			})
		},
	}
	f := cmd.Flags()
	kafka.addFlags(f)
	addTopicFlags(f, &o.Topics)
	f.StringVar(&o.Group, "group", o.Group, "consumer group; all ingests of one database share it")
	f.BoolVar(&o.Follow, "follow", false, "go on at the end of the topics")
	f.IntVar(&o.BatchRecords, "batch-records", o.BatchRecords, "records written at once, at most")
	f.DurationVar(&o.BatchTime, "batch-time", o.BatchTime, "how long a record waits to be written, at most")
	f.DurationVar(&o.Allowance, "allowance", o.Allowance, "how much the watermark stays behind what is drained: what agents may not have sent yet")
	f.DurationVar(&o.SilentAfter, "silent-after", o.SilentAfter, "a host without samples for so long is reported")
	f.DurationVar(&o.RetryFor, "retry-for", o.RetryFor, "how long ClickHouse or Kafka may be away")
	f.DurationVar(&o.Session, "session", o.Session, "the group takes an ingest that is silent for so long for dead")
	return cmd
}

// ingestMemory is what the garbage collector aims at; GOMEMLIMIT sets another.
const ingestMemory = 300 << 20

func (p *program) ingest(ctx context.Context, job *ingest.Job) error {
	if err := job.Store.CheckSchema(ctx); err != nil {
		return err
	}
	run, err := jobs.Start(ctx, job.Store, "ingest", os.Args[1:], version, p.now())
	if err != nil {
		return err
	}
	var bar *progressBar
	if os.Getenv("GOMEMLIMIT") == "" {
		defer debug.SetMemoryLimit(debug.SetMemoryLimit(ingestMemory)) // batches and what Kafka sent come and go; the heap need not grow to twice of them
	}
	job.Progress = func(r ingest.Result) {
		if bar == nil && !job.Options.Follow {
			bar = p.progress("ingest", int64(r.Total), "records")
		}
		if bar != nil {
			bar.set(int64(min(r.Records, r.Total)))
		}
	}
	result, err := job.Run(ctx, run.ID)
	if bar != nil {
		bar.done()
	}
	if endErr := run.End(ctx, result.Counts(), err); endErr != nil {
		p.log.WarnContext(ctx, "run log", jobs.KeyRunID, run.ID, "error", endErr)
	}
	if printErr := p.print(result, func() { printIngest(p, result) }); printErr != nil && err == nil {
		return printErr
	}
	return err
}

func printIngest(p *program, r ingest.Result) {
	fmt.Fprintf(p.stdout, "read %d records in %.1f s: %d samples of ports, %d of instances, %d of disks\n", r.Records, r.Seconds, r.Samples["port"], r.Samples["instance"], r.Samples["disk"])
	if r.Late > 0 {
		fmt.Fprintf(p.stdout, "%d samples came too late for the tiers: see the table late_samples\n", r.Late)
	}
	if r.Rejected > 0 {
		fmt.Fprintf(p.stdout, "%d records did not decode: see the table rejected_records\n", r.Rejected)
	}
	for _, x := range r.Losses {
		fmt.Fprintf(p.stdout, "LOST in Kafka: %s\n", describeLoss(x))
	}
	for _, x := range r.Regions {
		if x.Watermark.Unix() > 0 {
			fmt.Fprintf(p.stdout, "region %s is complete until %s\n", x.Region, x.Watermark.UTC().Format(time.RFC3339))
		} else {
			fmt.Fprintf(p.stdout, "region %s has no watermark yet: not all partitions were read\n", x.Region)
		}
		if x.WaitsFor != "" {
			fmt.Fprintf(p.stdout, "region %s waits for source %s, which was drained %s: %s\n", x.Region, plain(x.WaitsFor), whenDrained(x.Drained), x.Hint())
		}
	}
	printSilent(p, r.Silent)
}

// whenDrained says when all that a source held was stored last.
func whenDrained(t time.Time) string {
	if t.Unix() <= 0 {
		return "never yet"
	}
	return t.UTC().Format(time.RFC3339) + " last"
}

func describeLoss(x store.Loss) string {
	return fmt.Sprintf("%s/%d from offset %d, %s: %s", x.Topic, x.Partition, x.FromOffset, x.Cause, x.Detail)
}

// printSilent names the hosts that are silent, the first ones of many.
func printSilent(p *program, hosts []store.SilentHost) {
	const most = 10
	for i, h := range hosts {
		if i == most {
			fmt.Fprintf(p.stdout, "and %d more hosts are silent\n", len(hosts)-most)
			return
		}
		fmt.Fprintf(p.stdout, "host %s of region %s is silent: its last sample ended %s\n", h.Host, h.Region, h.LastSample.UTC().Format(time.RFC3339))
	}
}
