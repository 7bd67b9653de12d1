package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/ratebatch/ratebatch/agent/wire"
	"github.com/ratebatch/ratebatch/agent/wire/broker"
	"github.com/ratebatch/ratebatch/ratebatch"
)

// kafkaOptions are the flags of all commands that talk to Kafka brokers.
type kafkaOptions struct {
	brokers []string
	broker.Options
}

// addFlags adds the flags; the environment is their default. There is none for
// a password, because arguments show in the list of processes.
func (o *kafkaOptions) addFlags(f *pflag.FlagSet) {
	var brokers []string
	if text := os.Getenv("RATEBATCH_KAFKA"); text != "" {
		brokers = strings.Split(text, ",")
	}
	f.StringSliceVar(&o.brokers, "kafka", brokers, "Kafka brokers as host:port, with commas or repeated [RATEBATCH_KAFKA]")
	f.BoolVar(&o.TLS, "kafka-tls", os.Getenv("RATEBATCH_KAFKA_TLS") == "true", "connect by TLS; on as well where a CA or a certificate is named [RATEBATCH_KAFKA_TLS=true]")
	f.StringVar(&o.CAFile, "kafka-ca", os.Getenv("RATEBATCH_KAFKA_CA"), "file of the CA that signed the brokers' certificates; empty: the system's [RATEBATCH_KAFKA_CA]")
	f.StringVar(&o.CertFile, "kafka-cert", os.Getenv("RATEBATCH_KAFKA_CERT"), "file of our certificate, where the brokers ask for one [RATEBATCH_KAFKA_CERT]")
	f.StringVar(&o.KeyFile, "kafka-key", os.Getenv("RATEBATCH_KAFKA_KEY"), "file of its key [RATEBATCH_KAFKA_KEY]")
	f.StringVar(&o.Mechanism, "kafka-sasl", os.Getenv("RATEBATCH_KAFKA_SASL"), "how to log in: "+strings.Join(broker.Mechanisms(), ", ")+"; empty with a user: "+broker.ScramSHA256+" [RATEBATCH_KAFKA_SASL]")
	f.StringVar(&o.User, "kafka-user", os.Getenv("RATEBATCH_KAFKA_USER"), "user to log in as; the password is in RATEBATCH_KAFKA_PASSWORD or in a file [RATEBATCH_KAFKA_USER]")
	f.StringVar(&o.PasswordFile, "kafka-password-file", os.Getenv("RATEBATCH_KAFKA_PASSWORD_FILE"), "file with the password [RATEBATCH_KAFKA_PASSWORD_FILE]")
}

// given says whether any broker is named.
func (o *kafkaOptions) given() bool { return len(o.brokers) > 0 }

// options checks the flags and adds what does not come by flags.
func (o *kafkaOptions) options(p *program) (broker.Options, error) {
	out := o.Options
	out.Brokers, out.ClientID, out.Log = o.brokers, "ratebatch", p.log
	if out.PasswordFile == "" {
		out.Password = os.Getenv("RATEBATCH_KAFKA_PASSWORD")
	}
	if err := out.Validate(); err != nil {
		return out, &ratebatch.ConfigError{Err: err, Hint: "name the brokers with --kafka host:port, and see the other --kafka flags"}
	}
	return out, nil
}

// addTopicFlags adds the names of the three topics.
func addTopicFlags(f *pflag.FlagSet, topics *wire.Topics) {
	for _, x := range []struct {
		kind, name string
		into       *string
	}{{"port", wire.TopicPort, &topics.Port}, {"instance", wire.TopicInstance, &topics.Instance}, {"disk", wire.TopicDisk, &topics.Disk}} {
		variable := "RATEBATCH_KAFKA_" + strings.ToUpper(x.kind) + "_TOPIC"
		f.StringVar(x.into, x.kind+"-topic", envOr(variable, x.name), fmt.Sprintf("topic of %s records [%s]", x.kind, variable))
	}
}
