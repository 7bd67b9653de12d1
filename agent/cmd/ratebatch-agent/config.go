package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/ratebatch/ratebatch/agent/libvirt"
	"github.com/ratebatch/ratebatch/agent/wire"
	"github.com/ratebatch/ratebatch/agent/wire/broker"
)

// config is what the agent was told. The YAML file has these names.
type config struct {
	Interval       span          `yaml:"interval"`
	Hostname       string        `yaml:"hostname"`
	RegionName     string        `yaml:"region_name"`
	CommandTimeout span          `yaml:"command_timeout"`
	StateDir       string        `yaml:"state_dir"`
	Listen         string        `yaml:"listen"`
	LogFormat      string        `yaml:"log_format"`
	Verbose        bool          `yaml:"verbose"`
	Libvirt        libvirtConfig `yaml:"libvirt"`
	OVN            ovnConfig     `yaml:"ovn"`
	Kafka          kafkaConfig   `yaml:"kafka"`
	Spool          spoolConfig   `yaml:"spool"`
	// Nodes are several hypervisors for one agent; without them there is one,
	// described by the settings above.
	Nodes []nodeConfig `yaml:"nodes"`
}

type libvirtConfig struct {
	URI          string `yaml:"uri"`
	Username     string `yaml:"username"`
	Password     string `yaml:"password"`
	PasswordFile string `yaml:"password_file"`
	AuthFile     string `yaml:"auth_file"`
	AuthSection  string `yaml:"auth_section"`
	CACert       string `yaml:"ca_cert"`
	Certificate  string `yaml:"certificate"`
	PrivateKey   string `yaml:"private_key"`
}

type ovnConfig struct {
	NBDB        string `yaml:"nb_db"`
	SBDB        string `yaml:"sb_db"`
	Chassis     string `yaml:"chassis"`
	Disabled    bool   `yaml:"disabled"`
	PrivateKey  string `yaml:"private_key"`
	Certificate string `yaml:"certificate"`
	CACert      string `yaml:"ca_cert"`
	DeviceOwner string `yaml:"device_owner"`
	Hold        span   `yaml:"hold"`
}

type kafkaConfig struct {
	BootstrapServers string `yaml:"bootstrap_servers"`
	SASLUsername     string `yaml:"sasl_username"`
	SASLPassword     string `yaml:"sasl_password"`
	SASLPasswordFile string `yaml:"sasl_password_file"`
	SASLMechanism    string `yaml:"sasl_mechanism"`
	TLS              bool   `yaml:"tls"`
	CACert           string `yaml:"ca_cert"`
	Certificate      string `yaml:"certificate"`
	PrivateKey       string `yaml:"private_key"`
	Topic            string `yaml:"topic"`
	InstanceTopic    string `yaml:"instance_topic"`
	DiskTopic        string `yaml:"disk_topic"`
}

type spoolConfig struct {
	MaxAge   span  `yaml:"max_age"`
	MaxBytes int64 `yaml:"max_bytes"`
}

// nodeConfig is one hypervisor; what is empty is as above.
type nodeConfig struct {
	Host         string `yaml:"host"`
	RegionName   string `yaml:"region_name"`
	LibvirtURI   string `yaml:"libvirt_uri"`
	Username     string `yaml:"libvirt_username"`
	Password     string `yaml:"libvirt_password"`
	PasswordFile string `yaml:"libvirt_password_file"`
	AuthFile     string `yaml:"libvirt_auth_file"`
	AuthSection  string `yaml:"libvirt_auth_section"`
	OVNChassis   string `yaml:"ovn_chassis"`
}

func defaults() config {
	return config{
		Interval: span(time.Minute), RegionName: "RegionOne", CommandTimeout: span(20 * time.Second), StateDir: "/var/lib/ratebatch-agent", LogFormat: "text",
		Libvirt: libvirtConfig{URI: "qemu:///system", AuthSection: "credentials-default"},
		OVN:     ovnConfig{DeviceOwner: "compute:*", Hold: span(24 * time.Hour)},
		Kafka:   kafkaConfig{BootstrapServers: "localhost:9092", Topic: wire.TopicPort, InstanceTopic: wire.TopicInstance, DiskTopic: wire.TopicDisk},
		Spool:   spoolConfig{MaxAge: span(24 * time.Hour), MaxBytes: 2 << 30},
	}
}

// load reads the file, then the environment, then the flags, and reports all
// problems together. Errors name settings, never the values of secrets.
func load(flags map[string]string, getenv func(string) string) (config, error) {
	c := defaults()
	file := flags["config"]
	if file == "" {
		file = getenv("RATEBATCH_AGENT_CONFIG")
	}
	if file != "" {
		data, err := os.ReadFile(file)
		if err != nil {
			return c, fmt.Errorf("read --config: %w", err)
		}
		if err := yaml.UnmarshalWithOptions(data, &c, yaml.Strict()); err != nil {
			// The library shows the lines around a mistake; one of them may be a password.
			return c, fmt.Errorf("%s: %s", file, yaml.FormatError(err, false, false))
		}
	}
	var problems []error
	for _, s := range settings {
		if s.set == nil {
			continue
		}
		value, from := getenv(s.env), s.env
		if given, ok := flags[s.flag]; ok {
			value, from = given, "--"+s.flag
		}
		if value == "" {
			continue // compose sets every variable of its .env, the unused ones to nothing
		}
		if err := s.set(&c, value); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", from, err))
		}
	}
	if c.Hostname == "" && len(c.Nodes) == 0 {
		name, err := os.Hostname()
		if err != nil {
			problems = append(problems, fmt.Errorf("the machine does not tell its name: %w: give --hostname", err))
		}
		c.Hostname = name
	}
	problems = append(problems, c.validate()...)
	return c, errors.Join(problems...)
}

func (c *config) validate() (problems []error) {
	add := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if d := time.Duration(c.Interval); d < time.Second || d > time.Hour || d%time.Second != 0 {
		add("poll interval %s: use whole seconds from 1 to 3600", d)
	}
	if time.Duration(c.CommandTimeout) < time.Second {
		add("command timeout %s: use at least a second; libvirtd needs 6 ms per domain", time.Duration(c.CommandTimeout))
	}
	if c.LogFormat != "text" && c.LogFormat != "json" {
		add("log format %q: use text or json", c.LogFormat)
	}
	switch {
	case c.OVN.Disabled && (c.OVN.NBDB != "" || c.OVN.SBDB != ""):
		add("--no-ovn together with an OVN database: leave one out")
	case !c.OVN.Disabled && c.OVN.NBDB == "" && c.OVN.SBDB == "":
		add("no OVN database: give --ovn-nb-db tcp:HOST:6641 (OVN_NB_DB), or --no-ovn to take the domains' interface ids alone")
	case c.OVN.NBDB != "" && c.OVN.SBDB != "":
		add("--ovn-nb-db and --ovn-sb-db: leave one out")
	}
	if time.Duration(c.OVN.Hold) < 0 || c.Spool.MaxAge < 0 || c.Spool.MaxBytes < 0 {
		add("hold, spool age and spool bytes cannot be negative")
	}
	if c.Listen != "" {
		host, _, err := net.SplitHostPort(c.Listen)
		if ip := net.ParseIP(host); err != nil || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			add("listen address %q: only loopback (127.0.0.1:9755), because the figures name projects' hosts and nothing is asked of who reads them", c.Listen)
		}
	}
	seen, metered := map[string]bool{}, map[string]string{}
	for i, n := range c.nodes() {
		where := fmt.Sprintf("node %d (%s)", i+1, n.Host)
		for _, x := range []struct{ what, value string }{{"host", n.Host}, {"region name", n.RegionName}} {
			if x.value == "" || len(x.value) > wire.MaxText {
				add("%s: its %s is empty or longer than %d bytes", where, x.what, wire.MaxText)
			}
		}
		if seen[n.Host] {
			add("%s is there twice: records of one name would be taken for each other's", where)
		}
		seen[n.Host] = true
		// A URI that means nothing is reported where it is used.
		if target, err := libvirt.Target(n.LibvirtURI); err == nil {
			if other, twice := metered[target]; twice && other != n.Host {
				add("%s and the host %s have one hypervisor, %s: everything on it would be billed twice; give each its libvirt_uri", where, other, target)
			}
			metered[target] = n.Host
		}
		if n.Password != "" && n.PasswordFile != "" {
			add("%s: a libvirt password and a file with one: leave one out", where)
		}
		if hasPassword := n.Password != "" || n.PasswordFile != ""; (n.Username != "") != hasPassword {
			add("%s: libvirt's user and password go together (or use an auth file)", where)
		}
	}
	for i, t := range []string{c.Kafka.Topic, c.Kafka.InstanceTopic, c.Kafka.DiskTopic} {
		if t == "" || strings.ContainsAny(t, " /,:") {
			add("topic %d (%q): that cannot be a topic's name", i+1, t)
		}
	}
	if c.Kafka.Topic == c.Kafka.InstanceTopic || c.Kafka.Topic == c.Kafka.DiskTopic || c.Kafka.InstanceTopic == c.Kafka.DiskTopic {
		add("the three topics must differ")
	}
	return problems
}

// nodes are the hypervisors with everything filled in.
func (c *config) nodes() []nodeConfig {
	first := nodeConfig{Host: c.Hostname, RegionName: c.RegionName, LibvirtURI: c.Libvirt.URI, Username: c.Libvirt.Username, Password: c.Libvirt.Password,
		PasswordFile: c.Libvirt.PasswordFile, AuthFile: c.Libvirt.AuthFile, AuthSection: c.Libvirt.AuthSection, OVNChassis: c.OVN.Chassis}
	if len(c.Nodes) == 0 {
		return []nodeConfig{first}
	}
	out := make([]nodeConfig, len(c.Nodes))
	for i, n := range c.Nodes {
		fill := func(at *string, value string) {
			if *at == "" {
				*at = value
			}
		}
		fill(&n.RegionName, first.RegionName)
		fill(&n.LibvirtURI, first.LibvirtURI)
		if n.Username == "" && n.AuthFile == "" {
			n.Username, n.Password, n.PasswordFile, n.AuthFile = first.Username, first.Password, first.PasswordFile, first.AuthFile
		}
		fill(&n.AuthSection, first.AuthSection)
		fill(&n.OVNChassis, first.OVNChassis)
		out[i] = n
	}
	return out
}

func (c *config) topics() wire.Topics {
	return wire.Topics{Port: c.Kafka.Topic, Instance: c.Kafka.InstanceTopic, Disk: c.Kafka.DiskTopic}
}

func (c *config) broker() broker.Options {
	k := c.Kafka
	return broker.Options{
		Brokers: list(k.BootstrapServers), TLS: k.TLS, CAFile: k.CACert, CertFile: k.Certificate, KeyFile: k.PrivateKey,
		Mechanism: k.SASLMechanism, User: k.SASLUsername, Password: k.SASLPassword, PasswordFile: k.SASLPasswordFile, ClientID: "ratebatch-agent",
	}
}

// list splits at commas.
func list(s string) []string {
	var out []string
	for _, x := range strings.Split(s, ",") {
		if x = strings.TrimSpace(x); x != "" {
			out = append(out, x)
		}
	}
	return out
}
