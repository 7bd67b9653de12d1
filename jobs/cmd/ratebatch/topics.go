package main

import (
	"context"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/agent/wire/broker"
	"github.com/ratebatch/ratebatch/jobs/topics"
	"github.com/ratebatch/ratebatch/ratebatch"
)

func newTopicsCmd(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "topics",
		Short: "The Kafka topics, users and rights that usage needs",
	}
	cmd.AddCommand(newTopicsApplyCmd(p))
	return cmd
}

// topicsOptions are the flags of topics apply.
type topicsOptions struct {
	kafka                                 kafkaOptions
	topics                                topics.Options
	agentPasswordFile, ingestPasswordFile string
	segmentMiB                            int64
	dryRun                                bool
}

func newTopicsApplyCmd(p *program) *cobra.Command {
	var o topicsOptions
	cmd := &cobra.Command{
		Use:   "apply",
		Short: "Create the three topics, the users and their rights, or change what differs",
		Long: `Apply brings the Kafka brokers into the state that usage needs: the topics for
port, instance and disk records, a user for the agents who may write to them, and
one for ingest who may read them with its group. It changes what differs and
deletes nothing; running it again is harmless.

The brokers keep records for --retention, 24 hours by default: that long ClickHouse
or ingest may be away without a loss. The retention counts from when the brokers
got a record, whatever the host's clock says.

Passwords are read from the files named, or from RATEBATCH_AGENT_PASSWORD and
RATEBATCH_INGEST_PASSWORD. A user without a password gets its rights only.

` + exitCodesHelp,
		Example: `  ratebatch topics apply --kafka broker1:9092 --replication 3 --dry-run
  ratebatch topics apply --kafka broker1:9093 --kafka-ca ca.pem --kafka-user admin --kafka-password-file admin.secret \
    --agent-user agent --agent-password-file agent.secret --ingest-user ingest --ingest-password-file ingest.secret`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.topicsApply(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	o.kafka.addFlags(f)
	addTopicFlags(f, &o.topics.Topics)
	f.Int32Var(&o.topics.Partitions, "partitions", topics.DefaultPartitions, "partitions of each topic; more can be added later, fewer cannot")
	f.Int16Var(&o.topics.Replication, "replication", -1, "replicas of each partition; -1: the brokers' default")
	f.IntVar(&o.topics.MinInSync, "min-in-sync", 0, "replicas that must have a record before it counts as written; 0: the brokers' default")
	f.DurationVar(&o.topics.Retention, "retention", topics.DefaultRetention, "how long the brokers keep records")
	f.Int64Var(&o.segmentMiB, "segment-mib", topics.DefaultSegment>>20, "size of a segment; whole segments are deleted")
	f.StringVar(&o.topics.Agent.Name, "agent-user", "", "user of the agents: may write; empty: none")
	f.StringVar(&o.agentPasswordFile, "agent-password-file", "", "file with its password, else RATEBATCH_AGENT_PASSWORD")
	f.StringVar(&o.topics.Ingest.Name, "ingest-user", "", "user of ingest: may read, with its group; empty: none")
	f.StringVar(&o.ingestPasswordFile, "ingest-password-file", "", "file with its password, else RATEBATCH_INGEST_PASSWORD")
	f.StringVar(&o.topics.Mechanism, "users-sasl", broker.ScramSHA256, "how these users log in: "+broker.ScramSHA256+" or "+broker.ScramSHA512)
	f.StringVar(&o.topics.Group, "group", "ratebatch-ingest", "consumer group of ingest")
	f.BoolVar(&o.topics.ACLs, "acls", true, "give the users named their rights; --acls=false for brokers without an authorizer")
	f.BoolVar(&o.dryRun, "dry-run", false, "print what differs and change nothing")
	return cmd
}

// applied is what topics apply prints.
type applied struct {
	topics.Plan
	DryRun bool `json:"dry_run"`
}

func (p *program) topicsApply(ctx context.Context, o topicsOptions) error {
	brokers, err := o.kafka.options(p)
	if err != nil {
		return err
	}
	for _, x := range []struct {
		user           *topics.User
		file, variable string
	}{{&o.topics.Agent, o.agentPasswordFile, "RATEBATCH_AGENT_PASSWORD"}, {&o.topics.Ingest, o.ingestPasswordFile, "RATEBATCH_INGEST_PASSWORD"}} {
		if x.file != "" {
			if x.user.Password, err = broker.ReadPassword(x.file); err != nil {
				return &ratebatch.ConfigError{Err: err}
			}
		} else if x.user.Name != "" {
			x.user.Password = os.Getenv(x.variable)
		}
	}
	o.topics.Segment = o.segmentMiB << 20
	job := &topics.Job{Brokers: brokers, Options: o.topics, Log: p.log}
	plan, err := job.Plan(ctx)
	if err != nil {
		return err
	}
	if !o.dryRun && len(plan.Changes) > 0 {
		if err := job.Run(ctx, plan); err != nil {
			return err
		}
	}
	return p.print(applied{plan, o.dryRun}, func() {
		if len(plan.Changes) == 0 {
			fmt.Fprintf(p.stdout, "nothing differs: %d settings, users and rights are as wanted\n", plan.Same)
			return
		}
		w := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
		fmt.Fprintln(w, "WHAT\tNAME\tSETTING\tIS\tWANTED")
		for _, c := range plan.Changes {
			is := c.Is
			if is == "" {
				is = "-"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", c.What, c.Name, c.Setting, is, c.Wanted)
		}
		w.Flush()
		if o.dryRun {
			fmt.Fprintf(p.stdout, "%d would change, %d are as wanted; nothing was written\n", len(plan.Changes), plan.Same)
		} else {
			fmt.Fprintf(p.stdout, "%d changed, %d were as wanted\n", len(plan.Changes), plan.Same)
		}
	})
}
