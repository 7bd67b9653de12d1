package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func none(string) string { return "" }

// The .env of the specification, as it stands there.
func TestTheSpecificationsVariables(t *testing.T) {
	env := map[string]string{
		"KAFKA_BOOTSTRAP_SERVERS": "metrics.example.com:9092", "KAFKA_SASL_USERNAME": "agent", "KAFKA_SASL_PASSWORD": "agentpass",
		"LIBVIRT_URI": "qemu:///system", "LIBVIRT_USERNAME": "nova", "LIBVIRT_PASSWORD": "secret",
		"OVN_NB_DB": "tcp:1.1.0.1:6641", "REGION_NAME": "RegionOne", "POLL_INTERVAL": "60",
		"KAFKA_TOPIC": "", "OVSDB_CA_CERT": "", // compose sets what the .env does not have
	}
	c, err := load(nil, func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	n := c.nodes()[0]
	if c.Interval != span(time.Minute) || c.OVN.NBDB != "tcp:1.1.0.1:6641" || n.Username != "nova" || n.Password != "secret" || n.LibvirtURI != "qemu:///system" || n.RegionName != "RegionOne" || n.Host == "" {
		t.Errorf("%+v", c)
	}
	b := c.broker()
	if b.User != "agent" || b.Password != "agentpass" || b.Brokers[0] != "metrics.example.com:9092" || b.Validate() != nil {
		t.Errorf("%+v", b)
	}
	if got := c.topics().All(); got[0] != "port-stats" || got[1] != "instance-stats" || got[2] != "disk-stats" {
		t.Errorf("topics %q", got)
	}
}

func TestFlagsBeatTheEnvironmentAndThatTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(file, []byte("interval: 30s\nregion_name: of-the-file\nhostname: of-the-file\novn: {disabled: true, hold: 3600}\nspool: {max_age: 12h, max_bytes: 1000}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"RATEBATCH_AGENT_CONFIG": file, "REGION_NAME": "of-the-environment", "POLL_INTERVAL": "20"}
	c, err := load(map[string]string{"poll-interval": "10"}, func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	if c.Hostname != "of-the-file" || c.RegionName != "of-the-environment" || c.Interval != span(10*time.Second) || c.OVN.Hold != span(time.Hour) || c.Spool.MaxAge != span(12*time.Hour) || c.Spool.MaxBytes != 1000 {
		t.Errorf("%+v", c)
	}
}

func TestMistakesAreSaidTogetherAndWithoutSecrets(t *testing.T) {
	for name, tt := range map[string]struct {
		file  string
		flags map[string]string
		want  []string
	}{
		"no OVN":               {"", nil, []string{"--no-ovn", "OVN_NB_DB"}},
		"several at once":      {"", map[string]string{"poll-interval": "x", "log-format": "xml", "no-ovn": "maybe"}, []string{"--poll-interval", "log format", "--no-ovn"}},
		"an unknown key":       {"ovn: {disabled: true}\nintervall: 60\n", nil, []string{"intervall"}},
		"a password alone":     {"", map[string]string{"no-ovn": "true", "libvirt-password": "hunter2"}, []string{"user and password go together"}},
		"two passwords":        {"", map[string]string{"no-ovn": "true", "libvirt-username": "u", "libvirt-password": "hunter2", "libvirt-password-file": "f"}, []string{"leave one out"}},
		"open to the network":  {"", map[string]string{"no-ovn": "true", "listen": "0.0.0.0:9755"}, []string{"only loopback"}},
		"one host twice":       {"ovn: {disabled: true}\nnodes: [{host: a}, {host: a}]\n", nil, []string{"is there twice"}},
		"two hosts on one":     {"ovn: {disabled: true}\nnodes: [{host: compute-1}, {host: compute-2, libvirt_uri: 'qemu+tcp://localhost/system'}]\n", nil, []string{"node 2 (compute-2)", "host compute-1", "billed twice"}},
		"a host without name":  {"ovn: {disabled: true}\nnodes: [{libvirt_uri: 'qemu:///system'}]\n", nil, []string{"node 1"}},
		"one topic for two":    {"", map[string]string{"no-ovn": "true", "topic": "x", "disk-topic": "x"}, []string{"must differ"}},
		"both OVN databases":   {"", map[string]string{"ovn-nb-db": "tcp:h:1", "ovn-sb-db": "tcp:h:2"}, []string{"leave one out"}},
		"a secret of bad form": {"kafka:\n  sasl_password: {a: hunter2}\n", nil, []string{"agent.yaml"}},
		"polls every ms":       {"", map[string]string{"no-ovn": "true", "poll-interval": "1ms"}, []string{"1 to 3600"}},
		"no file":              {"", map[string]string{"config": "/nowhere/agent.yaml"}, []string{"/nowhere/agent.yaml"}},
	} {
		t.Run(name, func(t *testing.T) {
			flags := map[string]string{}
			for k, v := range tt.flags {
				flags[k] = v
			}
			if tt.file != "" {
				flags["config"] = filepath.Join(t.TempDir(), "agent.yaml")
				if err := os.WriteFile(flags["config"], []byte(tt.file), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, err := load(flags, none)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %q, want %q in it", err, want)
				}
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("a secret shows: %q", err)
			}
			var args []string
			for k, v := range flags {
				args = append(args, "--"+k+"="+v)
			}
			code, stdout, stderr := command(t, append([]string{"check"}, args...)...)
			if code != 2 || strings.Contains(stdout+stderr, "hunter2") {
				t.Errorf("exit %d: %s%s", code, stdout, stderr)
			}
		})
	}
}

func TestHelpAndMistypedCommands(t *testing.T) {
	t.Setenv("KAFKA_SASL_PASSWORD", "hunter2")
	for _, args := range [][]string{{"--help"}, {"run", "--help"}, {"once", "--help"}, {"check", "--help"}} {
		code, stdout, stderr := command(t, args...)
		if code != 0 || !strings.Contains(stdout, "Exit codes") || strings.Contains(stdout+stderr, "hunter2") {
			t.Errorf("%q: exit %d:\n%s%s", args, code, stdout, stderr)
		}
	}
	for _, args := range [][]string{{"runn"}, {"run", "now"}, {"check", "--nonsense"}, {"check", "--no-ovn", "--output", "xml"}, {"once", "--no-ovn", "--wait", "0s"}} {
		if code, _, stderr := command(t, args...); code != 2 || stderr == "" {
			t.Errorf("%q: exit %d: %s", args, code, stderr)
		}
	}
}

func TestPlacesOfHosts(t *testing.T) {
	got := folderOf("/state", nodeConfig{Host: "../a/b c", RegionName: "R/1"})
	if filepath.Dir(got) != "/state" {
		t.Errorf("a host's name leads out of the state directory: %s", got)
	}
	for uri, want := range map[string]bool{"qemu:///system": true, "qemu+unix:///system?socket=/x": true, "qemu+tcp://h/system": false, "qemu+tls://h/system": false, "qemu://h/system": false} {
		if local(uri) != want {
			t.Errorf("local(%s) = %v", uri, !want)
		}
	}
}
