package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

type migrateOptions struct {
	retention string
	cluster   string
	show      string
}

func newMigrateCmd(p *program) *cobra.Command {
	var o migrateOptions
	var kafka kafkaEngineOptions
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Create the tables, or bring them to this version",
		Long: `Migrate applies the numbered, forward-only statements of the schema that the
database lacks. It can be repeated and interrupted.

Retention is how long each tier keeps data, by the data's own time: raw samples
54h (agent spool 24h + topics 24h + 6h), 5-minute tier 7d, hourly tier 92d.
With --retention it is also changed on tables that exist, for the tiers that it
names; the others stay as they are.

With --kafka-engine ClickHouse reads the topics by itself, on servers that have the
Kafka engine: into the same tables, with rejected and late records listed, but
without watermarks and without noticing what Kafka lost. See docs/ingest.md.

` + exitCodesHelp,
		Example: `  ratebatch migrate
  ratebatch migrate --retention raw=54h,5min=7d,hourly=400d
  ratebatch migrate --print cluster --cluster billing
  ratebatch migrate --kafka-engine --kafka broker1:9092`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			retention, err := store.ParseRetention(o.retention)
			if err != nil {
				return err
			}
			if err := retention.Validate(); err != nil {
				return err
			}
			options := store.MigrateOptions{Retention: retention, SetRetention: o.retention != "", Cluster: o.cluster}
			if o.show != "" {
				if kafka.wanted {
					return p.printKafkaEngine(kafka, options)
				}
				return p.printSchema(options, o.show)
			}
			if err := p.migrate(cmd.Context(), options); err != nil || !kafka.wanted {
				return err
			}
			return p.migrateKafkaEngine(cmd.Context(), kafka, o.cluster)
		},
	}
	kafka.addFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.retention, "retention", "", "how long tiers keep data: raw=54h,5min=7d,hourly=92d, or one duration for all; h, d and y count")
	f.StringVar(&o.cluster, "cluster", "", "name of the ClickHouse cluster: ReplicatedMergeTree and Distributed tables")
	f.StringVar(&o.show, "print", "", "print the statements for single or cluster and do nothing")
	return cmd
}

func (p *program) printSchema(o store.MigrateOptions, kind string) error {
	switch kind {
	case "single":
		o.Cluster = ""
	case "cluster":
		if o.Cluster == "" {
			o.Cluster = "{cluster}"
		}
	default:
		return &ratebatch.ConfigError{Err: fmt.Errorf("--print %q", kind), Hint: "use single or cluster"}
	}
	migrations, err := store.Migrations(o)
	if err != nil {
		return err
	}
	for _, m := range migrations {
		for _, statement := range m.Statements {
			fmt.Fprintf(p.stdout, "%s;\n\n", statement)
		}
	}
	return nil
}

func (p *program) migrate(ctx context.Context, o store.MigrateOptions) error {
	p.engine.Create = true
	if o.Cluster != "" {
		p.log.WarnContext(ctx, "tables of a cluster were never tested with several servers: retention, backup.sh and users.sh are for one, see deploy/README.md", "cluster", o.Cluster)
	}
	return p.withStore(ctx, func(ctx context.Context, s *store.Store) error {
		result, err := s.Migrate(ctx, o)
		if err != nil {
			return err
		}
		return p.print(map[string]any{"applied": append([]string{}, result.Applied...), "version": result.Version, "database": s.Database()}, func() {
			if len(result.Applied) == 0 {
				fmt.Fprintf(p.stdout, "the schema of %s is up to date (version %d)\n", s.Database(), result.Version)
				return
			}
			fmt.Fprintf(p.stdout, "%d migrations applied to %s, schema version %d\n", len(result.Applied), s.Database(), result.Version)
			if p.verbose {
				fmt.Fprintln(p.stdout, strings.Join(result.Applied, "\n"))
			}
		})
	})
}
