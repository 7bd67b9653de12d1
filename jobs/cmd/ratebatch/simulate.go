package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/fixtures/simulate"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

func newSimulateCmd(p *program) *cobra.Command {
	var cloud simulate.Cloud
	var begin string
	var tiers, noRollup, faults bool
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Make up a cloud's usage from a seed and write it to ClickHouse",
		Long: `Simulate writes the usage of a made-up cloud: samples as agents would have sent
them, then both tiers. The same flags and --begin give the same samples, so they
count once however often the command runs. With --tiers only the hourly tiers
are filled, made inside ClickHouse: millions of rows in seconds, for benchmarks.

Never run it on a database that people are billed from.

` + exitCodesHelp,
		Example: `  ratebatch simulate --projects 10 --instances 200 --hours 48
  ratebatch simulate --instances 100 --faults --seed 7
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
				hours := time.Duration(cloud.WithDefaults().Hours) * time.Hour
				cloud.Begin = p.now().UTC().Truncate(time.Hour).Add(-hours)
			}
			if faults {
				cloud.Faults = simulate.Faults{Duplicates: 10_000, Late: 10_000, Missed: 5_000, Migrations: max(1, cloud.Instances/20), Resizes: max(1, cloud.Instances/20), Vanish: max(1, cloud.Hosts/10)}
			}
			if err := cloud.Validate(); err != nil {
				return err
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
	f.DurationVar(&cloud.Interval, "interval", time.Minute, "time between samples")
	f.BoolVar(&faults, "faults", false, "repeats, late samples, missed polls, migrations, resizes and hosts that fall silent")
	f.BoolVar(&tiers, "tiers", false, "fill the hourly tiers only, without samples")
	f.BoolVar(&noRollup, "no-rollup", false, "write samples only and leave the tiers to the views")
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
	load := func(progress func(simulate.Counts)) (simulate.Counts, error) {
		return cloud.LoadTiers(ctx, s, progress)
	}
	if !tiers {
		perRun *= int64(time.Hour / cloud.Interval)
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
