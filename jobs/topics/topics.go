// Package topics is the job that brings the brokers into the state that usage
// needs: the three topics with their partitions and settings, the users of the
// agents and of ingest, and what each of them may do. Running it again changes
// what differs and nothing else. It deletes nothing: no topic, no user, no ACL.
package topics

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ratebatch/ratebatch/agent/wire"
	"github.com/ratebatch/ratebatch/agent/wire/broker"
	"github.com/ratebatch/ratebatch/ratebatch"
)

// Defaults of a topic.
const (
	DefaultPartitions = 6
	// DefaultRetention is a day, where the specification has 10 minutes. What
	// the brokers delete before ingest has read it is usage that nobody is
	// billed for. ClickHouse may be away for a night without a loss.
	DefaultRetention = 24 * time.Hour
	// DefaultSegment bounds how much more than the retention is kept: brokers
	// delete whole segments.
	DefaultSegment = 128 << 20
)

// patience is how long the brokers may take to answer.
const patience = 20 * time.Second

// User is somebody whom the brokers let in.
type User struct {
	Name string
	// Password is set for the user if it is not empty. Without one the user is
	// the brokers' own matter (a certificate, another system), and only its
	// ACLs are.
	Password string
}

// Options say what the brokers should hold.
type Options struct {
	Topics      wire.Topics
	Partitions  int32         // of each topic; more are added, fewer are an error
	Any         bool          // number of partitions and replicas, where a topic is there: for who looks and mends nothing
	Replication int16         // -1: the brokers' default for a new topic, and no matter for one that is there
	MinInSync   int           // 0: the brokers' default
	Retention   time.Duration // at least a minute
	Segment     int64         // bytes

	Agent, Ingest User   // no name: no such user
	Mechanism     string // of their passwords: SCRAM-SHA-256 or SCRAM-SHA-512
	Group         string // of ingest
	ACLs          bool   // for the users named
}

// Validate reports all problems at once.
func (o *Options) Validate() error {
	var problems []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf("topics: "+format, args...))
		}
	}
	names := o.Topics.All()
	slices.Sort(names)
	check(len(slices.Compact(names)) == 3 && names[0] != "", "three topics with names of their own are needed, not %q", o.Topics.All())
	check(o.Partitions >= 1 && o.Partitions <= 10_000, "%d partitions", o.Partitions)
	check(o.Replication >= 1 || o.Replication == -1, "%d replicas: at least 1, or -1 for the brokers' default", o.Replication)
	check(o.MinInSync >= 0 && (o.Replication == -1 || o.MinInSync <= int(o.Replication)), "%d of %d replicas in sync", o.MinInSync, o.Replication)
	check(o.Retention >= time.Minute, "a retention of %s: at least a minute", o.Retention)
	check(o.Segment >= 1<<20, "segments of %d bytes: at least 1 MiB", o.Segment)
	check(o.Mechanism == broker.ScramSHA256 || o.Mechanism == broker.ScramSHA512, "users log in by %s or %s, not by %q", broker.ScramSHA256, broker.ScramSHA512, o.Mechanism)
	check(o.Agent.Name != "" || o.Agent.Password == "", "a password of the agents' user without its name")
	check(o.Ingest.Name != "" || o.Ingest.Password == "", "a password of ingest's user without its name")
	check(o.Agent.Name == "" || o.Agent.Name != o.Ingest.Name, "user %s cannot be the agents' and ingest's: each may do only what it needs", o.Agent.Name)
	check(o.Group != "" || o.Ingest.Name == "" || !o.ACLs, "ingest's user needs the name of its group")
	return errors.Join(problems...)
}

// Change is one thing that Run does.
type Change struct {
	What    string `json:"what"` // topic, user or acl
	Name    string `json:"name"`
	Setting string `json:"setting"` // of a topic, or what an ACL allows
	Is      string `json:"is"`      // empty: nothing
	Wanted  string `json:"wanted"`  // a password is never shown

	topicIsNew bool
	acl        *grant
	user       *User
}

// Plan is what differs, in the order in which Run mends it.
type Plan struct {
	Changes []Change `json:"changes"`
	Same    int      `json:"same"` // how many things are as they should be
}

// Job applies Options to brokers.
type Job struct {
	Brokers broker.Options // as somebody who may create topics, users and ACLs
	Options Options
	Log     *slog.Logger
}

// Plan compares the brokers with the options and writes nothing. What cannot be
// mended (fewer partitions) is a configuration error here already.
func (j *Job) Plan(ctx context.Context) (Plan, error) {
	plan := Plan{Changes: []Change{}}
	err := j.withAdmin(ctx, func(ctx context.Context, admin *kadm.Client) error {
		var problems []error
		for _, part := range []func(context.Context, *kadm.Client, *Plan) error{j.planTopics, j.planUsers, j.planACLs} {
			if err := part(ctx, admin, &plan); err != nil {
				problems = append(problems, err)
			}
		}
		return errors.Join(problems...)
	})
	return plan, err
}

// Run does what plan says. Steps that succeeded stay when a later one fails; a
// new Plan then names the rest.
func (j *Job) Run(ctx context.Context, plan Plan) error {
	return j.withAdmin(ctx, func(ctx context.Context, admin *kadm.Client) error {
		for _, step := range []func(context.Context, *kadm.Client, Plan) error{j.createTopics, j.addPartitions, j.alterSettings, j.setPasswords, j.allow} {
			if err := step(ctx, admin, plan); err != nil {
				return err
			}
		}
		j.Log.InfoContext(ctx, "the brokers are as wanted", "changes", len(plan.Changes), "same", plan.Same)
		return nil
	})
}

// withAdmin connects, and sorts errors into those that a new try may mend and
// those that a person has to.
func (j *Job) withAdmin(ctx context.Context, use func(context.Context, *kadm.Client) error) error {
	if err := j.Options.Validate(); err != nil {
		return &ratebatch.ConfigError{Err: err}
	}
	client, err := j.Brokers.Client(kgo.RetryTimeout(patience))
	if err != nil {
		return &ratebatch.ConfigError{Err: err}
	}
	defer client.Close()
	if err := j.Brokers.Await(ctx, client, patience); err != nil {
		if broker.IsLoginFailure(err) {
			return &ratebatch.ConfigError{Err: err, Hint: "check the user, its password and the mechanism"}
		}
		return &ratebatch.TryAgainError{Err: err, Hint: "check the address, TLS and the login if it stays like this"}
	}
	err = use(ctx, kadm.NewClient(client))
	var known *ratebatch.ConfigError
	var refused *kadm.AuthError
	switch {
	case err == nil, errors.As(err, &known):
		return err
	case errors.Is(err, kerr.SecurityDisabled):
		return &ratebatch.ConfigError{Err: err, Hint: "the brokers check no ACLs; leave them out with --acls=false, or give the brokers an authorizer"}
	case errors.As(err, &refused), errors.Is(err, kerr.ClusterAuthorizationFailed), errors.Is(err, kerr.TopicAuthorizationFailed):
		return &ratebatch.ConfigError{Err: err, Hint: "log in as a user who may create topics, users and ACLs"}
	case kerr.IsRetriable(err), errors.Is(err, context.DeadlineExceeded), errors.Is(err, kerr.TopicAlreadyExists):
		return &ratebatch.TryAgainError{Err: err}
	}
	return err
}

// settings are the topic settings that matter, in the order they are shown.
func (o *Options) settings() [][2]string {
	out := [][2]string{
		{"retention.ms", strconv.FormatInt(o.Retention.Milliseconds(), 10)},
		{"retention.bytes", "-1"}, // a size would delete earlier than the time says
		{"segment.bytes", strconv.FormatInt(o.Segment, 10)},
		{"cleanup.policy", "delete"}, // compaction would keep one sample per port
		// The retention counts from when the brokers got a record. Counted from
		// the host's clock, a clock that is a day late, or an agent that sends
		// what it spooled, would have its records deleted at once.
		{"message.timestamp.type", "LogAppendTime"},
	}
	if o.MinInSync > 0 {
		out = append(out, [2]string{"min.insync.replicas", strconv.Itoa(o.MinInSync)})
	}
	return out
}

func (j *Job) planTopics(ctx context.Context, admin *kadm.Client, plan *Plan) error {
	o := &j.Options
	details, err := admin.ListTopics(ctx, o.Topics.All()...)
	if err != nil {
		return fmt.Errorf("list topics: %w", err)
	}
	var there []string
	for _, topic := range o.Topics.All() {
		detail := details[topic]
		if errors.Is(detail.Err, kerr.UnknownTopicOrPartition) {
			if o.MinInSync > 1 && o.Replication < 1 {
				return &ratebatch.ConfigError{Err: fmt.Errorf("topic %s is new, and %d replicas in sync are wanted of as many as the brokers make by themselves", topic, o.MinInSync),
					Hint: "say how many replicas with --replication: a topic that has fewer than must be in sync takes no record, and every agent stops"}
			}
			plan.Changes = append(plan.Changes, Change{What: "topic", Name: topic, Setting: "partitions", Wanted: strconv.Itoa(int(o.Partitions)), topicIsNew: true})
			if o.Replication > 0 {
				plan.Changes = append(plan.Changes, Change{What: "topic", Name: topic, Setting: "replicas", Wanted: strconv.Itoa(int(o.Replication)), topicIsNew: true})
			}
			for _, s := range o.settings() {
				plan.Changes = append(plan.Changes, Change{What: "topic", Name: topic, Setting: s[0], Wanted: s[1], topicIsNew: true})
			}
			continue
		}
		if detail.Err != nil {
			return fmt.Errorf("topic %s: %w", topic, detail.Err)
		}
		there = append(there, topic)
		if err := planPartitions(o, detail, plan); err != nil {
			return err
		}
	}
	if len(there) == 0 {
		return nil
	}
	configs, err := admin.DescribeTopicConfigs(ctx, there...)
	if err != nil {
		return fmt.Errorf("settings of %v: %w", there, err)
	}
	slices.SortFunc(configs, func(a, b kadm.ResourceConfig) int {
		return cmp.Compare(slices.Index(there, a.Name), slices.Index(there, b.Name))
	})
	for _, c := range configs {
		if c.Err != nil {
			return fmt.Errorf("settings of topic %s: %w", c.Name, c.Err)
		}
		is := map[string]string{}
		for _, x := range c.Configs {
			if x.Value != nil {
				is[x.Key] = *x.Value
			}
		}
		for _, s := range o.settings() {
			plan.note(Change{What: "topic", Name: c.Name, Setting: s[0], Is: is[s[0]], Wanted: s[1]})
		}
	}
	return nil
}

// planPartitions compares the shape of a topic that is there.
func planPartitions(o *Options, detail kadm.TopicDetail, plan *Plan) error {
	if o.Any {
		return nil
	}
	partitions := len(detail.Partitions)
	if partitions > int(o.Partitions) {
		return &ratebatch.ConfigError{Err: fmt.Errorf("topic %s has %d partitions, %d are wanted", detail.Topic, partitions, o.Partitions),
			Hint: fmt.Sprintf("Kafka cannot take partitions away; ask for at least %d, or name another topic", partitions)}
	}
	fewest := math.MaxInt
	for _, p := range detail.Partitions {
		fewest = min(fewest, len(p.Replicas))
	}
	if o.MinInSync > fewest {
		return &ratebatch.ConfigError{Err: fmt.Errorf("topic %s has %d replicas, %d in sync are wanted: it would take no record any more, and every agent would stop", detail.Topic, fewest, o.MinInSync),
			Hint: fmt.Sprintf("ask for at most %d with --min-in-sync, or give the topic more replicas first, with the brokers' own tools", fewest)}
	}
	plan.note(Change{What: "topic", Name: detail.Topic, Setting: "partitions", Is: strconv.Itoa(partitions), Wanted: strconv.Itoa(int(o.Partitions))})
	if replicas := detail.Partitions.NumReplicas(); o.Replication > 0 && replicas != int(o.Replication) {
		return &ratebatch.ConfigError{Err: fmt.Errorf("topic %s has %d replicas, %d are wanted", detail.Topic, replicas, o.Replication),
			Hint: "moving replicas is the brokers' own tools' matter; leave --replication out to take what is there"}
	}
	return nil
}

// note adds a change if it is one.
func (p *Plan) note(c Change) {
	if c.Is == c.Wanted {
		p.Same++
		return
	}
	p.Changes = append(p.Changes, c)
}

func (j *Job) createTopics(ctx context.Context, admin *kadm.Client, plan Plan) error {
	var names []string
	for _, c := range plan.Changes {
		if c.topicIsNew && c.Setting == "partitions" {
			names = append(names, c.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	settings := map[string]*string{}
	for _, s := range j.Options.settings() {
		settings[s[0]] = &s[1]
	}
	responses, err := admin.CreateTopics(ctx, j.Options.Partitions, j.Options.Replication, settings, names...)
	if err != nil {
		return fmt.Errorf("create topics %v: %w", names, err)
	}
	for _, r := range responses.Sorted() {
		if r.Err != nil {
			return fmt.Errorf("create topic %s: %w%s", r.Topic, r.Err, more(r.ErrMessage))
		}
	}
	return nil
}

func (j *Job) addPartitions(ctx context.Context, admin *kadm.Client, plan Plan) error {
	for _, c := range plan.Changes {
		if c.What != "topic" || c.topicIsNew || c.Setting != "partitions" {
			continue
		}
		responses, err := admin.UpdatePartitions(ctx, int(j.Options.Partitions), c.Name)
		if err == nil {
			err = responses.Error()
		}
		if err != nil {
			return fmt.Errorf("topic %s: from %s to %s partitions: %w", c.Name, c.Is, c.Wanted, err)
		}
	}
	return nil
}

func (j *Job) alterSettings(ctx context.Context, admin *kadm.Client, plan Plan) error {
	for _, topic := range j.Options.Topics.All() {
		var alter []kadm.AlterConfig
		for _, c := range plan.Changes {
			if c.What == "topic" && c.Name == topic && !c.topicIsNew && c.Setting != "partitions" {
				alter = append(alter, kadm.AlterConfig{Op: kadm.SetConfig, Name: c.Setting, Value: kadm.StringPtr(c.Wanted)})
			}
		}
		if len(alter) == 0 {
			continue
		}
		responses, err := admin.AlterTopicConfigs(ctx, alter, topic)
		if err != nil {
			return fmt.Errorf("settings of topic %s: %w", topic, err)
		}
		for _, r := range responses {
			if r.Err != nil {
				return fmt.Errorf("settings of topic %s: %w%s", topic, r.Err, more(r.ErrMessage))
			}
		}
	}
	return nil
}

// more is what the brokers add to an error.
func more(message string) string {
	if message == "" {
		return ""
	}
	return ": " + message
}
