package topics_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ratebatch/ratebatch/agent/wire"
	"github.com/ratebatch/ratebatch/agent/wire/broker"
	"github.com/ratebatch/ratebatch/fixtures/kafkatest"
	"github.com/ratebatch/ratebatch/jobs/topics"
	"github.com/ratebatch/ratebatch/ratebatch"
)

// newJob is a job with names of the test's own.
func newJob(t *testing.T, b *kafkatest.Broker) *topics.Job {
	t.Helper()
	names := wire.Topics{Port: b.Name("port"), Instance: b.Name("instance"), Disk: b.Name("disk")}
	b.Forget(t, names.All()...)
	return &topics.Job{Brokers: b.Options, Log: slog.New(slog.DiscardHandler), Options: topics.Options{
		Topics: names, Partitions: 2, Replication: -1, Retention: topics.DefaultRetention, Segment: topics.DefaultSegment, Mechanism: broker.ScramSHA256, ACLs: true,
	}}
}

// apply plans and runs, and wants nothing to be left to do.
func apply(t *testing.T, job *topics.Job) topics.Plan {
	t.Helper()
	plan, err := job.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := job.Run(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
	again, err := job.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(again.Changes) != 0 {
		t.Fatalf("a second run would change %+v", again.Changes)
	}
	return plan
}

// state reads a topic back from the brokers.
func state(t *testing.T, b *kafkatest.Broker, topic string) (partitions int, settings map[string]string) {
	t.Helper()
	admin := b.Admin(t) // a client of its own: clients keep what they know of topics for a while
	details, err := admin.ListTopics(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	if errors.Is(details[topic].Err, kerr.UnknownTopicOrPartition) {
		return 0, nil
	}
	configs, err := admin.DescribeTopicConfigs(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	settings = map[string]string{}
	for _, c := range configs[0].Configs {
		if c.Value != nil {
			settings[c.Key] = *c.Value
		}
	}
	return len(details[topic].Partitions), settings
}

func TestTopicsAreCreatedAndChangedButNeverShrunk(t *testing.T) {
	b := kafkatest.Start(t, kafkatest.Config{})
	job := newJob(t, b)
	dry, err := job.Plan(t.Context())
	if err != nil || len(dry.Changes) == 0 {
		t.Fatalf("the plan for new topics: %+v, %v", dry, err)
	}
	for _, topic := range job.Options.Topics.All() {
		if partitions, _ := state(t, b, topic); partitions != 0 {
			t.Fatalf("planning made topic %s", topic)
		}
	}
	apply(t, job)
	for _, topic := range job.Options.Topics.All() {
		partitions, settings := state(t, b, topic)
		if partitions != 2 {
			t.Errorf("%s has %d partitions", topic, partitions)
		}
		for key, want := range map[string]string{"retention.ms": "86400000", "retention.bytes": "-1", "segment.bytes": "134217728", "cleanup.policy": "delete", "message.timestamp.type": "LogAppendTime"} {
			if settings[key] != want {
				t.Errorf("%s: %s is %q, want %q", topic, key, settings[key], want)
			}
		}
	}

	job.Options.Retention, job.Options.Partitions = 48*time.Hour, 5
	plan := apply(t, job)
	if len(plan.Changes) != 6 || plan.Changes[0].Is == "" {
		t.Errorf("three retentions and three numbers of partitions differ, the plan has %+v", plan.Changes)
	}
	if partitions, settings := state(t, b, job.Options.Topics.Disk); partitions != 5 || settings["retention.ms"] != "172800000" {
		t.Errorf("%d partitions, retention %s", partitions, settings["retention.ms"])
	}

	// What an operator changed by hand comes back, topic by topic.
	hour := "3600000"
	if _, err := b.Admin(t).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "retention.ms", Value: &hour}}, job.Options.Topics.Port); err != nil {
		t.Fatal(err)
	}
	if plan := apply(t, job); len(plan.Changes) != 1 || plan.Changes[0].Is != hour || plan.Changes[0].Wanted != "172800000" || plan.Changes[0].Name != job.Options.Topics.Port {
		t.Errorf("the plan has %+v", plan.Changes)
	}

	job.Options.Partitions = 4
	_, err = job.Plan(t.Context())
	if ratebatch.ExitCode(err) != ratebatch.ExitConfig || !strings.Contains(err.Error(), "has 5 partitions, 4 are wanted") {
		t.Errorf("fewer partitions: %v", err)
	}
}

// A topic that wants more replicas in sync than it has takes no record any more.
func TestNoMoreReplicasMustBeInSyncThanThereAre(t *testing.T) {
	b := kafkatest.Start(t, kafkatest.Config{})
	job := newJob(t, b)
	refused := func(text string) {
		t.Helper()
		plan, err := job.Plan(t.Context())
		if ratebatch.ExitCode(err) != ratebatch.ExitConfig || !strings.Contains(err.Error(), text) {
			t.Errorf("%d in sync: %v, want %q; the plan has %+v", job.Options.MinInSync, err, text, plan.Changes)
		}
	}
	job.Options.MinInSync = 2
	refused("is new, and 2 replicas in sync are wanted")
	job.Options.MinInSync = 1
	apply(t, job)
	details, err := b.Admin(t).ListTopics(t.Context(), job.Options.Topics.Port)
	if err != nil {
		t.Fatal(err)
	}
	replicas := details[job.Options.Topics.Port].Partitions.NumReplicas()
	job.Options.MinInSync = replicas + 1
	refused(fmt.Sprintf("has %d replicas, %d in sync are wanted", replicas, replicas+1))
	job.Options.MinInSync = replicas
	apply(t, job)
}

func TestEachUserMayDoItsWorkOnly(t *testing.T) {
	b := kafkatest.Start(t, kafkatest.Config{Mechanism: broker.ScramSHA256, ACLs: true})
	if b.Options.User == "" {
		t.Skip("RATEBATCH_TEST_KAFKA is reached without a login, so rights do not show")
	}
	job := newJob(t, b)
	job.Options.Agent = topics.User{Name: b.Name("agent"), Password: "agent-secret"}
	job.Options.Ingest = topics.User{Name: b.Name("ingest"), Password: "ingest-secret"}
	job.Options.Group = b.Name("group")
	forgetUsers(t, b, job)
	apply(t, job)

	as := func(u topics.User, opts ...kgo.Opt) *kgo.Client {
		o := b.Options
		o.User, o.Password, o.Mechanism = u.Name, u.Password, job.Options.Mechanism
		client, err := o.Client(append(opts, kgo.RetryTimeout(5*time.Second), kgo.RecordDeliveryTimeout(5*time.Second))...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		return client
	}
	record := func(topic string) *kgo.Record { return &kgo.Record{Topic: topic, Value: []byte("{}")} }
	for _, topic := range job.Options.Topics.All() {
		if err := as(job.Options.Agent).ProduceSync(t.Context(), record(topic)).FirstErr(); err != nil {
			t.Errorf("the agents' user cannot write to %s: %v", topic, err)
		}
		if err := as(job.Options.Ingest).ProduceSync(t.Context(), record(topic)).FirstErr(); err == nil {
			t.Errorf("ingest's user can write to %s", topic)
		}
	}
	read := func(u topics.User, group string) error {
		client := as(u, kgo.ConsumeTopics(job.Options.Topics.All()...), kgo.ConsumerGroup(group), kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		for got := 0; got < 3; {
			fetches := client.PollFetches(ctx)
			if err := fetches.Err(); err != nil {
				return err
			}
			got += fetches.NumRecords()
		}
		return client.CommitUncommittedOffsets(ctx)
	}
	if err := read(job.Options.Ingest, job.Options.Group); err != nil {
		t.Errorf("ingest's user cannot read and commit: %v", err)
	}
	if err := read(job.Options.Ingest, b.Name("other-group")); err == nil {
		t.Error("ingest's user can read with another group")
	}
	if err := read(job.Options.Agent, job.Options.Group); err == nil {
		t.Error("the agents' user can read")
	}
	if _, err := kadm.NewClient(as(job.Options.Agent)).CreateTopic(t.Context(), 1, -1, nil, b.Name("x")); err == nil {
		t.Error("the agents' user can create topics")
	}

	// A new password is noticed and set; the old one stops working.
	old := job.Options.Agent
	job.Options.Agent.Password = "another-secret"
	plan := apply(t, job)
	if len(plan.Changes) != 1 || plan.Changes[0].What != "user" || plan.Changes[0].Is != "another password" {
		t.Errorf("after the password changed the plan has %+v", plan.Changes)
	}
	if err := as(job.Options.Agent).ProduceSync(t.Context(), record(job.Options.Topics.Port)).FirstErr(); err != nil {
		t.Errorf("the new password: %v", err)
	}
	if err := as(old).ProduceSync(t.Context(), record(job.Options.Topics.Port)).FirstErr(); err == nil {
		t.Error("the old password still works")
	}

	// Somebody who may not is told so.
	poor := *job
	poor.Brokers.User, poor.Brokers.Password = job.Options.Agent.Name, job.Options.Agent.Password
	poor.Options.Topics.Port = b.Name("new")
	if _, err := poor.Plan(t.Context()); ratebatch.ExitCode(err) != ratebatch.ExitConfig || !strings.Contains(err.Error(), "log in as a user who may") {
		t.Errorf("the agents' user plans topics: %v", err)
	}
}

// forgetUsers removes users and ACLs from a broker that outlives the test.
func forgetUsers(t *testing.T, b *kafkatest.Broker, job *topics.Job) {
	if !b.Outside {
		return
	}
	admin := b.Admin(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for _, u := range []topics.User{job.Options.Agent, job.Options.Ingest} {
			if _, err := admin.AlterUserSCRAMs(ctx, []kadm.DeleteSCRAM{{User: u.Name, Mechanism: kadm.ScramSha256}}, nil); err != nil {
				t.Error(err)
			}
			filter := kadm.NewACLs().AnyResource().Allow("User:" + u.Name).AllowHosts().Operations().ResourcePatternType(kadm.ACLPatternAny)
			if _, err := admin.DeleteACLs(ctx, filter); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestMistakesInOptions(t *testing.T) {
	good := topics.Options{Topics: wire.DefaultTopics(), Partitions: 1, Replication: -1, Retention: time.Hour, Segment: 1 << 20, Mechanism: broker.ScramSHA512}
	if err := good.Validate(); err != nil {
		t.Errorf("good options: %v", err)
	}
	for want, change := range map[string]func(*topics.Options){
		"three topics":          func(o *topics.Options) { o.Topics.Disk = o.Topics.Port },
		"0 partitions":          func(o *topics.Options) { o.Partitions = 0 },
		"0 replicas":            func(o *topics.Options) { o.Replication = 0 },
		"3 of 2 replicas":       func(o *topics.Options) { o.Replication, o.MinInSync = 2, 3 },
		"a retention of 1s":     func(o *topics.Options) { o.Retention = time.Second },
		"segments of 1 bytes":   func(o *topics.Options) { o.Segment = 1 },
		`not by "PLAIN"`:        func(o *topics.Options) { o.Mechanism = "PLAIN" },
		"without its name":      func(o *topics.Options) { o.Agent.Password = "x" },
		"cannot be the agents'": func(o *topics.Options) { o.Agent.Name, o.Ingest.Name, o.Group = "a", "a", "g" },
		"the name of its group": func(o *topics.Options) { o.Ingest.Name, o.ACLs = "i", true },
	} {
		o := good
		change(&o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestNobodyThereIsAReasonToTryAgain(t *testing.T) {
	b := kafkatest.Start(t, kafkatest.Config{})
	b.Own(t)
	job := newJob(t, b)
	b.Pause()
	if _, err := job.Plan(t.Context()); ratebatch.ExitCode(err) != ratebatch.ExitTryAgain || !strings.Contains(err.Error(), b.Options.Brokers[0]) {
		t.Errorf("no broker: %v", err)
	}
}
