package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// setting is one value that a flag or the environment gives. Names are the
// specification's where it has one.
type setting struct {
	flag, env, kind, help string
	set                   func(*config, string) error
}

func text(at func(*config) *string) func(*config, string) error {
	return func(c *config, v string) error {
		*at(c) = v
		return nil
	}
}

func boolean(at func(*config) *bool) func(*config, string) error {
	return func(c *config, v string) (err error) {
		if *at(c), err = strconv.ParseBool(v); err != nil {
			return fmt.Errorf("%q is neither true nor false", v)
		}
		return nil
	}
}

func lasting(at func(*config) *span) func(*config, string) error {
	return func(c *config, v string) error { return at(c).UnmarshalText([]byte(v)) }
}

var settings = []setting{
	{"config", "RATEBATCH_AGENT_CONFIG", "file", "YAML file with settings (docs/agent.md)", nil},

	{"libvirt-uri", "LIBVIRT_URI", "uri", "qemu:///system (default), qemu+unix:///system?socket=/path, qemu+tcp://host/system or qemu+tls://host/system", text(func(c *config) *string { return &c.Libvirt.URI })},
	{"libvirt-username", "LIBVIRT_USERNAME", "name", "SASL user of libvirt", text(func(c *config) *string { return &c.Libvirt.Username })},
	{"libvirt-password", "LIBVIRT_PASSWORD", "secret", "its password; arguments show in the list of processes, so rather use the variable or the file", text(func(c *config) *string { return &c.Libvirt.Password })},
	{"libvirt-password-file", "LIBVIRT_PASSWORD_FILE", "file", "file with the password", text(func(c *config) *string { return &c.Libvirt.PasswordFile })},
	{"libvirt-auth-file", "LIBVIRT_AUTH_FILE", "file", "libvirt's auth.conf as Nova has it, instead of user and password", text(func(c *config) *string { return &c.Libvirt.AuthFile })},
	{"libvirt-auth-section", "LIBVIRT_AUTH_SECTION", "name", "section of that file (default credentials-default)", text(func(c *config) *string { return &c.Libvirt.AuthSection })},
	{"libvirt-ca-cert", "LIBVIRT_CA_CERT", "file", "CA of qemu+tls", text(func(c *config) *string { return &c.Libvirt.CACert })},
	{"libvirt-certificate", "LIBVIRT_CERTIFICATE", "file", "client certificate for qemu+tls", text(func(c *config) *string { return &c.Libvirt.Certificate })},
	{"libvirt-private-key", "LIBVIRT_PRIVATE_KEY", "file", "its key", text(func(c *config) *string { return &c.Libvirt.PrivateKey })},

	{"ovn-nb-db", "OVN_NB_DB", "endpoints", "OVN's Northbound database: tcp:host:6641 or ssl:host:6641, several with commas", text(func(c *config) *string { return &c.OVN.NBDB })},
	{"ovn-sb-db", "OVN_SB_DB", "endpoints", "the Southbound database instead", text(func(c *config) *string { return &c.OVN.SBDB })},
	{"ovn-chassis", "OVN_CHASSIS", "name", "with the Southbound database: this host's chassis", text(func(c *config) *string { return &c.OVN.Chassis })},
	{"no-ovn", "NO_OVN", "bool", "without OVN: the interface ids in the domains' XML are the ports, networks stay unknown", boolean(func(c *config) *bool { return &c.OVN.Disabled })},
	{"ovsdb-private-key", "OVSDB_PRIVATE_KEY", "file", "key for ssl:", text(func(c *config) *string { return &c.OVN.PrivateKey })},
	{"ovsdb-certificate", "OVSDB_CERTIFICATE", "file", "certificate for ssl:", text(func(c *config) *string { return &c.OVN.Certificate })},
	{"ovsdb-ca-cert", "OVSDB_CA_CERT", "file", "CA for ssl:", text(func(c *config) *string { return &c.OVN.CACert })},
	{"device-owner", "OVN_DEVICE_OWNER", "glob", "ports to meter, by neutron:device_owner (default compute:*)", text(func(c *config) *string { return &c.OVN.DeviceOwner })},
	{"hold", "OVN_HOLD", "duration", "how long traffic waits until OVN knows its port (default 24h)", lasting(func(c *config) *span { return &c.OVN.Hold })},

	{"bootstrap-servers", "KAFKA_BOOTSTRAP_SERVERS", "addresses", "Kafka brokers, several with commas (default localhost:9092)", text(func(c *config) *string { return &c.Kafka.BootstrapServers })},
	{"sasl-username", "KAFKA_SASL_USERNAME", "name", "SASL user of Kafka", text(func(c *config) *string { return &c.Kafka.SASLUsername })},
	{"sasl-password", "KAFKA_SASL_PASSWORD", "secret", "its password; rather use the variable or the file", text(func(c *config) *string { return &c.Kafka.SASLPassword })},
	{"sasl-password-file", "KAFKA_SASL_PASSWORD_FILE", "file", "file with the password, read at every login", text(func(c *config) *string { return &c.Kafka.SASLPasswordFile })},
	{"sasl-mechanism", "KAFKA_SASL_MECHANISM", "name", "SCRAM-SHA-256 (default), SCRAM-SHA-512 or PLAIN", text(func(c *config) *string { return &c.Kafka.SASLMechanism })},
	{"kafka-tls", "KAFKA_TLS", "bool", "use TLS to Kafka", boolean(func(c *config) *bool { return &c.Kafka.TLS })},
	{"kafka-ca-cert", "KAFKA_CA_CERT", "file", "CA of the brokers", text(func(c *config) *string { return &c.Kafka.CACert })},
	{"kafka-certificate", "KAFKA_CERTIFICATE", "file", "client certificate for Kafka", text(func(c *config) *string { return &c.Kafka.Certificate })},
	{"kafka-private-key", "KAFKA_PRIVATE_KEY", "file", "its key", text(func(c *config) *string { return &c.Kafka.PrivateKey })},
	{"topic", "KAFKA_TOPIC", "name", "topic of ports (default port-stats)", text(func(c *config) *string { return &c.Kafka.Topic })},
	{"instance-topic", "KAFKA_INSTANCE_TOPIC", "name", "topic of instances (default instance-stats)", text(func(c *config) *string { return &c.Kafka.InstanceTopic })},
	{"disk-topic", "KAFKA_DISK_TOPIC", "name", "topic of disks (default disk-stats)", text(func(c *config) *string { return &c.Kafka.DiskTopic })},

	{"poll-interval", "POLL_INTERVAL", "duration", "time between polls, in seconds or as 1m (default 60)", lasting(func(c *config) *span { return &c.Interval })},
	{"hostname", "HOSTNAME", "name", "this host, as the records name it (default: the machine's)", text(func(c *config) *string { return &c.Hostname })},
	{"region-name", "REGION_NAME", "name", "region, as the records name it (default RegionOne)", text(func(c *config) *string { return &c.RegionName })},
	{"command-timeout", "COMMAND_TIMEOUT", "duration", "bound of each call to libvirt and OVN (default 20)", lasting(func(c *config) *span { return &c.CommandTimeout })},
	{"state-dir", "STATE_DIRECTORY", "folder", "last readings and unsent records (default /var/lib/ratebatch-agent; systemd sets the variable)", func(c *config, v string) error {
		c.StateDir, _, _ = strings.Cut(v, ":") // systemd lists several with colons
		return nil
	}},
	{"spool-max-age", "SPOOL_MAX_AGE", "duration", "how long unsent records are kept (default 24h)", lasting(func(c *config) *span { return &c.Spool.MaxAge })},
	{"spool-max-bytes", "SPOOL_MAX_BYTES", "bytes", "and how many bytes of them, on disk, for all hosts together (default 2147483648)", func(c *config, v string) (err error) {
		if c.Spool.MaxBytes, err = strconv.ParseInt(v, 10, 64); err != nil {
			return fmt.Errorf("%q is not a number of bytes", v)
		}
		return nil
	}},
	{"listen", "LISTEN", "address", "serve /metrics and /healthz here, such as 127.0.0.1:9755 (default: nowhere)", text(func(c *config) *string { return &c.Listen })},
	{"log-format", "LOG_FORMAT", "name", "logs on stderr: text (default) or json", text(func(c *config) *string { return &c.LogFormat })},
	{"verbose", "VERBOSE", "bool", "log each poll", boolean(func(c *config) *bool { return &c.Verbose })},
}

// span is a time in seconds (the specification's way) or in Go's notation.
type span time.Duration

// UnmarshalText reads 60, 60s or 1m.
func (s *span) UnmarshalText(b []byte) error {
	v := strings.TrimSpace(string(b))
	if n, err := strconv.ParseUint(v, 10, 31); err == nil {
		*s = span(time.Duration(n) * time.Second)
		return nil
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		return fmt.Errorf("%q is not a time: write seconds, or 1m", v)
	}
	*s = span(d)
	return nil
}
