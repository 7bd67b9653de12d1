package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ratebatch/ratebatch/agent/wire"
	"github.com/ratebatch/ratebatch/agent/wire/broker"
	"github.com/ratebatch/ratebatch/jobs/ingest"
	"github.com/ratebatch/ratebatch/ratebatch"
	"github.com/ratebatch/ratebatch/ratebatch/engine"
	"github.com/ratebatch/ratebatch/ratebatch/store"
)

// kafkaEngineOptions are the flags of migrate for ClickHouse's own consumer.
type kafkaEngineOptions struct {
	wanted    bool
	brokers   kafkaOptions
	topics    wire.Topics
	group     string
	consumers int
}

func (o *kafkaEngineOptions) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&o.wanted, "kafka-engine", false, "make Kafka tables and views too, so that ClickHouse reads the topics by itself, instead of 'ratebatch ingest'")
	o.brokers.addFlags(f)
	addTopicFlags(f, &o.topics)
	f.StringVar(&o.group, "group", ingest.DefaultGroup+"-clickhouse", "with --kafka-engine: consumer group")
	f.IntVar(&o.consumers, "consumers", 1, "with --kafka-engine: consumers of each topic and server")
}

func (o *kafkaEngineOptions) engine(p *program, cluster string) (store.KafkaEngine, error) {
	b, err := o.brokers.options(p)
	if err != nil {
		return store.KafkaEngine{}, err
	}
	password := b.Password
	if b.PasswordFile != "" {
		if password, err = brokerPassword(b.PasswordFile); err != nil {
			return store.KafkaEngine{}, err
		}
	}
	mechanism := strings.ToUpper(b.Mechanism)
	if mechanism == "" && b.User != "" {
		mechanism = broker.ScramSHA256
	}
	return store.KafkaEngine{
		Brokers: b.Brokers, Port: o.topics.Port, Instance: o.topics.Instance, Disk: o.topics.Disk, Group: o.group, Consumers: o.consumers,
		TLS: b.UsesTLS(), Mechanism: mechanism, User: b.User, Password: password, Cluster: cluster,
	}, nil
}

// printKafkaEngine prints the statements without the password.
func (p *program) printKafkaEngine(o kafkaEngineOptions, options store.MigrateOptions) error {
	k, err := o.engine(p, options.Cluster)
	if err != nil {
		return err
	}
	k.Database = p.engine.Database
	if k.Password != "" {
		k.Password = "***"
	}
	statements, err := k.Statements()
	if err != nil {
		return err
	}
	for _, statement := range statements {
		fmt.Fprintf(p.stdout, "%s;\n\n", statement)
	}
	return nil
}

// migrateKafkaEngine makes the tables and views. The embedded engine, which
// keeps statements inside its own data, is told that this one is ours.
func (p *program) migrateKafkaEngine(ctx context.Context, o kafkaEngineOptions, cluster string) error {
	k, err := o.engine(p, cluster)
	if err != nil {
		return err
	}
	e, err := engine.Open(ctx, p.engine)
	if err != nil {
		return err
	}
	err = store.New(e.Conn(), e.Database()).MigrateKafkaEngine(e.WithFileAccess(ctx), k)
	if closeErr := e.Close(); err == nil {
		err = closeErr
	}
	if err == nil && p.output != "json" {
		fmt.Fprintf(p.stdout, "ClickHouse reads the topics %s by itself, as group %s\n", strings.Join(o.topics.All(), ", "), k.Group)
	}
	return err
}

func brokerPassword(file string) (string, error) {
	password, err := broker.ReadPassword(file)
	if err != nil {
		return "", &ratebatch.ConfigError{Err: err}
	}
	return password, nil
}
