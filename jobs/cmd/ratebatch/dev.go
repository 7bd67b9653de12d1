package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/fixtures/devkafka"
	"github.com/ratebatch/ratebatch/ratebatch"
)

// newDevCmd groups what developers and the demo need. It is hidden: nothing of
// it belongs on a server.
func newDevCmd(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:    "dev",
		Short:  "Servers for development, on this machine only",
		Hidden: true,
	}
	cmd.AddCommand(newDevKafkaCmd(p))
	return cmd
}

func newDevKafkaCmd(p *program) *cobra.Command {
	var o devkafka.Options
	var usersFile string
	cmd := &cobra.Command{
		Use:   "kafka",
		Short: "Run a Kafka broker for development until interrupted",
		Long: `Kafka runs one broker that speaks the real protocol, on the loopback interface
only, and prints its address. It is for development, tests and the demo: one
process, no replication. Never send usage to it that people are billed from.

With --sasl users have to log in. The file has one user a line:

  SCRAM-SHA-256 admin secret1 super
  SCRAM-SHA-512 agent secret2
  PLAIN         clickhouse secret3

With --acls users that are not super may do only what 'ratebatch topics apply' or
another tool has allowed them.

` + exitCodesHelp,
		Example: `  ratebatch dev kafka --port 9092
  ratebatch dev kafka --port 9092 --sasl users --acls --kafka-data /tmp/kafka`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if usersFile != "" {
				var err error
				if o.Users, err = devkafka.ReadUsers(usersFile); err != nil {
					return &ratebatch.ConfigError{Err: err}
				}
			}
			return p.devKafka(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Port, "port", 0, "port on 127.0.0.1; 0: a free one")
	f.StringVar(&usersFile, "sasl", "", "file of the users that may log in; empty: no login")
	f.BoolVar(&o.ACLs, "acls", false, "check ACLs (needs --sasl)")
	f.StringVar(&o.DataDir, "kafka-data", "", "folder to keep topics, records and offsets in; empty: in memory only")
	f.IntVar(&o.Partitions, "partitions", 3, "partitions of a topic that is created without a number")
	return cmd
}

func (p *program) devKafka(ctx context.Context, o devkafka.Options) error {
	if o.ACLs && len(o.Users) == 0 {
		return &ratebatch.ConfigError{Err: fmt.Errorf("--acls without --sasl"), Hint: "name a file of users; without a login everybody is anonymous"}
	}
	if o.Partitions < 1 || o.Port < 0 || o.Port > 65535 {
		return &ratebatch.ConfigError{Err: fmt.Errorf("--port %d, --partitions %d", o.Port, o.Partitions)}
	}
	b, err := devkafka.Start(o)
	if err != nil {
		return &ratebatch.TryAgainError{Err: err}
	}
	defer b.Close()
	if err := p.print(map[string]any{"address": b.Address(), "users": len(o.Users)}, func() {
		fmt.Fprintf(p.stdout, "development broker at %s\n", b.Address())
	}); err != nil {
		return err
	}
	<-ctx.Done()
	return nil // being told to end is how this command ends
}
