package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/fixtures/simulate"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

func newSimulateCmd(p *program) *cobra.Command {
	var cloud simulate.Cloud
	var begin string
	var tiers, noRollup, faults bool
	var kafka simulateKafka
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Make up a cloud's usage from a seed and write it to ClickHouse or Kafka",
		Long: `Simulate writes the usage of a made-up cloud: samples as agents would have sent
them, then both tiers. The same flags and --begin give the same samples, so they
count once however often the command runs. With --tiers only the hourly tiers
are filled, made inside ClickHouse: millions of rows in seconds, for benchmarks.
With --kafka the samples go to the three topics instead, as the agents' records.

--faults turns on what goes wrong in a real cloud, in the shares that the flags
for each fault show; a fault that is given by itself has its own. Counters that
are reset do not show, since agents send differences.

Never run it on a database, or on topics, that people are billed from.

` + exitCodesHelp,
		Example: `  ratebatch simulate --projects 10 --instances 200 --hours 48
  ratebatch simulate --instances 100 --faults --seed 7
  ratebatch simulate --kafka localhost:9092 --instances 1000 --hours 2 --faults --garbage 1000
  ratebatch simulate --tiers --projects 500 --instances 20000 --flavors 40 --hours 720`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if begin != "" {
				var err error
				if cloud.Begin, err = parseInstant("--begin", begin); err != nil {
					return err
				}
			} else {
				// The newest whole hours, so that no retention deletes them.
				full := cloud.WithDefaults()
				cloud.Begin = p.now().UTC().Truncate(time.Hour).Add(-full.End().Sub(full.Begin))
			}
			if faults {
				usualFaults(cmd.Flags(), &cloud)
			}
			if err := cloud.Validate(); err != nil {
				return err
			}
			// RATEBATCH_KAFKA is for ingest: what is made up goes to Kafka only
			// when the command line says so.
			if p.given["kafka"] {
				if tiers {
					return &ratebatch.ConfigError{Err: errors.New("--tiers with --kafka"), Hint: "tiers are made in ClickHouse; leave one out"}
				}
				return p.simulateToKafka(cmd.Context(), cloud, kafka)
			}
			return p.withStore(cmd.Context(), func(ctx context.Context, s *store.Store) error {
				return p.simulate(ctx, s, cloud, tiers, noRollup)
			})
		},
	}
	f := cmd.Flags()
	f.Uint64Var(&cloud.Seed, "seed", 1, "the same seed gives the same cloud")
	f.StringVar(&cloud.Region, "region", "RegionOne", "name of the region")
	f.IntVar(&cloud.Projects, "projects", 3, "number of projects")
	f.IntVar(&cloud.Instances, "instances", 30, "number of instances, of all projects together")
	f.IntVar(&cloud.Flavors, "flavors", 5, "number of flavors")
	f.IntVar(&cloud.Hosts, "hosts", 0, "number of hosts; 0: one per 25 instances")
	f.IntVar(&cloud.Networks, "networks", 0, "number of networks; 0: one per project")
	f.StringVar(&begin, "begin", "", "first moment, such as 2026-11-01; empty: so that it ends with the last whole hour")
	f.IntVar(&cloud.Hours, "hours", 24, "hours of usage")
	f.IntVar(&cloud.Cycles, "cycles", 0, "polls of each instance, instead of hours; 0: hours")
	f.DurationVar(&cloud.Interval, "interval", time.Minute, "time between samples")
	f.BoolVar(&faults, "faults", false, "repeats, late samples, missed polls, migrations, resizes and hosts that fall silent, in usual shares")
	addFaultFlags(f, &cloud)
	f.BoolVar(&tiers, "tiers", false, "fill the hourly tiers only, without samples")
	f.BoolVar(&noRollup, "no-rollup", false, "write samples only and leave the tiers to the views")
	kafka.brokers.addFlags(f)
	addTopicFlags(f, &kafka.topics)
	return cmd
}

// simulated is what simulate prints.
type simulated struct {
	simulate.Counts
	From   time.Time           `json:"from"`
	To     time.Time           `json:"to"`
	Rollup *store.RollupResult `json:"rollup,omitempty"`
}

func (p *program) simulate(ctx context.Context, s *store.Store, cloud simulate.Cloud, tiers, noRollup bool) error {
	if err := s.CheckSchema(ctx); err != nil {
		return err
	}
	cloud = cloud.WithDefaults()
	out := simulated{From: cloud.Begin, To: cloud.End()}
	perRun := int64(cloud.Instances) * 3 * int64(cloud.Hours)
	cycles := int64(cloud.End().Sub(cloud.Begin) / cloud.Interval)
	load := func(progress func(simulate.Counts)) (simulate.Counts, error) {
		return cloud.LoadTiers(ctx, s, progress)
	}
	if !tiers {
		perRun = int64(cloud.Instances) * 3 * cycles
		load = func(progress func(simulate.Counts)) (simulate.Counts, error) { return cloud.Load(ctx, s, progress) }
	}
	bar := p.progress("simulate", perRun, "rows")
	counts, err := load(func(c simulate.Counts) { bar.set(min(c.Total(), perRun)) })
	bar.done()
	if err != nil {
		return err
	}
	out.Counts = counts
	if !tiers && !noRollup {
		bar := p.progress("rollup", 100, "%")
		result, err := s.RollupWith(ctx, store.RollupOptions{From: cloud.Begin, To: cloud.End(), Progress: func(r store.RollupProgress) { bar.set(int64(100 * r.Done / r.Total)) }})
		bar.done()
		if err != nil {
			return err
		}
		out.Rollup = &result
	}
	return p.print(out, func() {
		what := "samples"
		if tiers {
			what = "hourly rows"
		}
		fmt.Fprintf(p.stdout, "%s of %d instances from %s to %s: %d of instances, %d of ports, %d of disks\n", what, cloud.Instances,
			out.From.Format(time.RFC3339), out.To.Format(time.RFC3339), counts.Instances, counts.Ports, counts.Disks)
		if out.Rollup != nil {
			p.printCounts(out.Rollup.Rows, "rows")
		}
	})
}
