// Package broker says how to reach the Kafka brokers: addresses, TLS and SASL,
// the same for the agents and for the jobs that read, create topics or
// simulate. It lies below wire because both ends of the wire need it and jobs
// import nothing else of the agent.
//
// Passwords come from a file or from the environment, never from an argument:
// arguments show in the list of processes.
package broker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// Names of the SASL mechanisms.
const (
	Plain       = "PLAIN"
	ScramSHA256 = "SCRAM-SHA-256"
	ScramSHA512 = "SCRAM-SHA-512"
)

// Mechanisms lists them.
func Mechanisms() []string { return []string{Plain, ScramSHA256, ScramSHA512} }

// Options say how to reach the brokers. The zero value of a field means
// "without it", but for Mechanism.
type Options struct {
	Brokers []string // host:port; the port is 9092 where it is missing

	TLS      bool   // on as well as soon as one of the files is named
	CAFile   string // PEM; empty: the system's
	CertFile string // PEM, with KeyFile: the client's certificate
	KeyFile  string

	Mechanism    string // empty with a user: SCRAM-SHA-256, as the specification's pipeline
	User         string
	Password     string
	PasswordFile string // its content without the last newline; read anew at every login, so it can be exchanged

	ClientID string       // how the brokers' logs call this program
	Log      *slog.Logger // what the client has to say; nil: nothing
}

// UsesTLS says whether connections are encrypted.
func (o *Options) UsesTLS() bool {
	return o.TLS || o.CAFile != "" || o.CertFile != "" || o.KeyFile != ""
}

// mechanism is the one in force, empty without SASL.
func (o *Options) mechanism() string {
	if o.Mechanism == "" && o.User != "" {
		return ScramSHA256
	}
	return strings.ToUpper(o.Mechanism)
}

// Validate reports all problems at once. It reads the files that are named, so
// that a missing one is found before anything starts.
func (o *Options) Validate() error {
	var problems []error
	add := func(format string, args ...any) { problems = append(problems, fmt.Errorf("kafka: "+format, args...)) }
	if len(o.Brokers) == 0 {
		add("no broker is named")
	}
	for _, address := range o.Brokers {
		if err := checkAddress(address); err != nil {
			add("%w", err)
		}
	}
	if _, err := o.tlsConfig(); err != nil {
		add("%w", err)
	}
	switch mechanism := o.mechanism(); mechanism {
	case "":
		if o.Password != "" || o.PasswordFile != "" {
			add("a password without a user")
		}
	case Plain, ScramSHA256, ScramSHA512:
		if o.User == "" {
			add("SASL %s without a user", mechanism)
		}
		if o.Password != "" && o.PasswordFile != "" {
			add("two passwords, one by itself and one in %s: leave one out", o.PasswordFile)
		}
		if _, err := o.password(); err != nil {
			add("%w", err)
		}
	default:
		add("SASL mechanism %q is not one of %s", o.Mechanism, strings.Join(Mechanisms(), ", "))
	}
	return errors.Join(problems...)
}

func checkAddress(address string) error {
	host := address
	if strings.Contains(address, "://") {
		return fmt.Errorf("broker %q: write host:port, without a scheme", address)
	}
	if strings.Contains(address, ":") {
		var err error
		if host, _, err = net.SplitHostPort(address); err != nil {
			return fmt.Errorf("broker %q: %w", address, err)
		}
	}
	if host == "" || strings.ContainsAny(host, " /,@") {
		return fmt.Errorf("broker %q: write host:port", address)
	}
	return nil
}

// password gives the password that a login now would use.
func (o *Options) password() (string, error) {
	if o.PasswordFile == "" {
		if o.Password == "" {
			return "", fmt.Errorf("user %s without a password: name a password file", o.User)
		}
		return o.Password, nil
	}
	return ReadPassword(o.PasswordFile)
}

// ReadPassword reads a password file: one line, of which the line's end is not
// a part.
func ReadPassword(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("password file: %w", err)
	}
	password := strings.TrimRight(string(text), "\r\n")
	if password == "" || strings.ContainsAny(password, "\r\n\x00") {
		return "", fmt.Errorf("password file %s: it has to hold one line", file)
	}
	return password, nil
}

func (o *Options) tlsConfig() (*tls.Config, error) {
	if !o.UsesTLS() {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CAFile != "" {
		pem, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("CA file: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("CA file %s: it holds no PEM certificate", o.CAFile)
		}
	}
	if (o.CertFile == "") != (o.KeyFile == "") {
		return nil, errors.New("a client certificate and its key go together: name both files")
	}
	if o.CertFile != "" {
		certificate, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("client certificate %s: %w", o.CertFile, err)
		}
		config.Certificates = []tls.Certificate{certificate}
	}
	return config, nil
}

// Client makes a client of these options and extra ones. It connects when it is
// first used. The caller closes it.
func (o *Options) Client(extra ...kgo.Opt) (*kgo.Client, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	opts := []kgo.Opt{kgo.SeedBrokers(o.Brokers...)}
	if o.ClientID != "" {
		opts = append(opts, kgo.ClientID(o.ClientID))
	}
	if o.Log != nil {
		opts = append(opts, kgo.WithLogger(logger{o.Log}))
	}
	config, err := o.tlsConfig()
	if err != nil {
		return nil, err
	}
	if config != nil {
		opts = append(opts, kgo.DialTLSConfig(config))
	}
	if mechanism := o.login(); mechanism != nil {
		opts = append(opts, kgo.SASL(mechanism))
	}
	return kgo.NewClient(append(opts, extra...)...)
}

func (o *Options) login() sasl.Mechanism {
	options := *o
	switch o.mechanism() {
	case Plain:
		return plain.Plain(func(context.Context) (plain.Auth, error) {
			password, err := options.password()
			return plain.Auth{User: options.User, Pass: password}, err
		})
	case ScramSHA256:
		return scram.Sha256(func(context.Context) (scram.Auth, error) {
			password, err := options.password()
			return scram.Auth{User: options.User, Pass: password}, err
		})
	case ScramSHA512:
		return scram.Sha512(func(context.Context) (scram.Auth, error) {
			password, err := options.password()
			return scram.Auth{User: options.User, Pass: password}, err
		})
	}
	return nil
}

// Ping asks the brokers for a sign of life, for at most the given time. Clients
// repeat what fails without an end; a job that a typing mistake keeps from the
// brokers has to say so instead.
func (o *Options) Ping(ctx context.Context, client *kgo.Client, patience time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer within %s", patience))
	defer cancel()
	err := client.Ping(ctx)
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return fmt.Errorf("kafka brokers %s (%s): %w", strings.Join(o.Brokers, ", "), o.way(), err)
}

// restart is for how long brokers that refuse connections may be starting.
const restart = 5 * time.Second

// Await is Ping for jobs that start: brokers that refuse or drop connections may
// be restarting at this very moment and are asked again for a few seconds.
func (o *Options) Await(ctx context.Context, client *kgo.Client, patience time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer within %s", patience))
	defer cancel()
	starting, stop := context.WithTimeout(ctx, restart)
	defer stop()
	for {
		err := o.Ping(ctx, client, patience)
		var unknown *net.DNSError
		if err == nil || IsLoginFailure(err) || errors.As(err, &unknown) {
			return err
		}
		select {
		case <-starting.Done():
			return err
		case <-time.After(restart / 20):
		}
	}
}

// way says in words how o connects; no secret is in it.
func (o *Options) way() string {
	way := "without TLS"
	if o.UsesTLS() {
		way = "by TLS"
	}
	if m := o.mechanism(); m != "" {
		return way + ", as user " + o.User + " by " + m
	}
	return way + ", without a login"
}

// IsLoginFailure says whether the brokers refused who we say we are, which a
// repetition does not mend.
func IsLoginFailure(err error) bool {
	return errors.Is(err, kerr.SaslAuthenticationFailed) || errors.Is(err, kerr.UnsupportedSaslMechanism) || errors.Is(err, kerr.IllegalSaslState)
}

// logger passes on what the client warns of.
type logger struct{ log *slog.Logger }

func (logger) Level() kgo.LogLevel { return kgo.LogLevelWarn }

func (l logger) Log(_ kgo.LogLevel, message string, keyvals ...any) {
	l.log.With(keyvals...).Warn("kafka client", slog.String("message", message))
}
