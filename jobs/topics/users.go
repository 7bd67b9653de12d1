package topics

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ratebatch/ratebatch/agent/wire/broker"
)

// iterations of SCRAM, Kafka's own number.
const iterations = 4096

// loginPatience is how long a trial login may take.
const loginPatience = 5 * time.Second

func (o *Options) scram() kadm.ScramMechanism {
	if o.Mechanism == broker.ScramSHA512 {
		return kadm.ScramSha512
	}
	return kadm.ScramSha256
}

// planUsers finds users that are missing, lack the mechanism, or have another
// password. Brokers do not tell passwords, so the last is found by logging in.
func (j *Job) planUsers(ctx context.Context, admin *kadm.Client, plan *Plan) error {
	o := &j.Options
	for _, u := range []User{o.Agent, o.Ingest} {
		if u.Password == "" {
			continue
		}
		described, err := admin.DescribeUserSCRAMs(ctx, u.Name)
		if err != nil {
			return fmt.Errorf("user %s: %w", u.Name, err)
		}
		known := described[u.Name]
		if known.Err != nil && !errors.Is(known.Err, kerr.ResourceNotFound) {
			return fmt.Errorf("user %s: %w%s", u.Name, known.Err, more(known.ErrMessage))
		}
		is := ""
		for _, c := range known.CredInfos {
			if c.Mechanism == o.scram() {
				is = "password set"
			}
		}
		if is != "" && !j.canLogIn(ctx, u) {
			is = "another password"
		}
		plan.note(Change{What: "user", Name: u.Name, Setting: o.Mechanism, Is: is, Wanted: "password set", user: &u})
	}
	return nil
}

// canLogIn tries a user's password. Where the brokers are reached without a
// login there is nothing to try it on, and a password that is set counts as the
// right one. A login that fails for another reason counts as a wrong password:
// setting the same one again does no harm.
func (j *Job) canLogIn(ctx context.Context, u User) bool {
	if j.Brokers.User == "" {
		return true
	}
	as := j.Brokers
	as.User, as.Password, as.PasswordFile, as.Mechanism, as.Log = u.Name, u.Password, "", j.Options.Mechanism, nil
	client, err := as.Client(kgo.RetryTimeout(loginPatience))
	if err != nil {
		return false
	}
	defer client.Close()
	return as.Ping(ctx, client, loginPatience) == nil
}

func (j *Job) setPasswords(ctx context.Context, admin *kadm.Client, plan Plan) error {
	for _, c := range plan.Changes {
		if c.user == nil {
			continue
		}
		altered, err := admin.AlterUserSCRAMs(ctx, nil, []kadm.UpsertSCRAM{{User: c.user.Name, Mechanism: j.Options.scram(), Iterations: iterations, Password: c.user.Password}})
		if err == nil {
			err = altered.Error()
		}
		if err != nil {
			return fmt.Errorf("password of user %s: %w", c.user.Name, err)
		}
	}
	return nil
}

// grant is one ACL: a user may do an operation on a resource, from any host.
type grant struct {
	user      string
	resource  kmsg.ACLResourceType
	name      string
	operation kadm.ACLOperation
}

// cluster is the only name that a cluster has in ACLs.
const cluster = "kafka-cluster"

func (g grant) String() string {
	return strings.ToLower(fmt.Sprintf("%s on %s ", g.operation, g.resource)) + g.name
}

// grants are what the users need and no more. Reading and writing imply
// describing.
func (o *Options) grants() []grant {
	if !o.ACLs {
		return nil
	}
	var out []grant
	if o.Agent.Name != "" {
		for _, topic := range o.Topics.All() {
			out = append(out, grant{o.Agent.Name, kmsg.ACLResourceTypeTopic, topic, kadm.OpWrite})
		}
		// Agents write idempotently, so that a repeat on a shaky line is no
		// second record. Kafka before 3.0 and Redpanda want this one for it.
		out = append(out, grant{o.Agent.Name, kmsg.ACLResourceTypeCluster, cluster, kadm.OpIdempotentWrite})
	}
	if o.Ingest.Name != "" {
		for _, topic := range o.Topics.All() {
			out = append(out, grant{o.Ingest.Name, kmsg.ACLResourceTypeTopic, topic, kadm.OpRead})
		}
		out = append(out, grant{o.Ingest.Name, kmsg.ACLResourceTypeGroup, o.Group, kadm.OpRead})
	}
	return out
}

func (g grant) builder() *kadm.ACLBuilder {
	b := kadm.NewACLs().Allow("User:" + g.user).AllowHosts().Operations(g.operation).ResourcePatternType(kadm.ACLPatternLiteral)
	switch g.resource {
	case kmsg.ACLResourceTypeTopic:
		return b.Topics(g.name)
	case kmsg.ACLResourceTypeGroup:
		return b.Groups(g.name)
	default:
		return b.Clusters()
	}
}

func (j *Job) planACLs(ctx context.Context, admin *kadm.Client, plan *Plan) error {
	for _, g := range j.Options.grants() {
		results, err := admin.DescribeACLs(ctx, g.builder())
		if err != nil {
			return fmt.Errorf("ACLs of user %s: %w", g.user, err)
		}
		is := ""
		for _, r := range results {
			if r.Err != nil {
				return fmt.Errorf("ACLs of user %s: %w%s", g.user, r.Err, more(r.ErrMessage))
			}
			for _, d := range r.Described {
				if d.Principal == "User:"+g.user && d.Host == "*" && d.Type == g.resource && d.Name == g.name && d.Operation == g.operation &&
					d.Pattern == kadm.ACLPatternLiteral && d.Permission == kmsg.ACLPermissionTypeAllow {
					is = "allowed"
				}
			}
		}
		plan.note(Change{What: "acl", Name: g.user, Setting: g.String(), Is: is, Wanted: "allowed", acl: &g})
	}
	return nil
}

func (j *Job) allow(ctx context.Context, admin *kadm.Client, plan Plan) error {
	for _, c := range plan.Changes {
		if c.acl == nil {
			continue
		}
		results, err := admin.CreateACLs(ctx, c.acl.builder())
		if err != nil {
			return fmt.Errorf("allow user %s %s: %w", c.Name, c.Setting, err)
		}
		for _, r := range results {
			if r.Err != nil {
				return fmt.Errorf("allow user %s %s: %w%s", c.Name, c.Setting, r.Err, more(r.ErrMessage))
			}
		}
	}
	return nil
}
