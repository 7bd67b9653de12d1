package libvirt

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestURIs(t *testing.T) {
	for uri, want := range map[string]target{
		"qemu:///system":                         {driver: "qemu:///system", network: "unix", places: localSockets, host: "localhost"},
		"qemu+unix:///system?socket=/run/a/sock": {driver: "qemu:///system", network: "unix", places: []string{"/run/a/sock"}, host: "localhost"},
		"qemu+unix:///session?socket=/run/s":     {driver: "qemu:///session", network: "unix", places: []string{"/run/s"}, host: "localhost"},
		"qemu+tcp://node1/system":                {driver: "qemu:///system", network: "tcp", places: []string{"node1:16509"}, host: "node1"},
		"qemu+tcp://[2001:db8::1]:17000/system":  {driver: "qemu:///system", network: "tcp", places: []string{"[2001:db8::1]:17000"}, host: "2001:db8::1"},
		"qemu+tls://node1/system":                {driver: "qemu:///system", network: "tcp", places: []string{"node1:16514"}, host: "node1", tls: true},
		"qemu://node1/system":                    {driver: "qemu:///system", network: "tcp", places: []string{"node1:16514"}, host: "node1", tls: true},
	} {
		got, err := parseURI(uri)
		if err != nil || got.String() != want.String() || got.driver != want.driver || got.network != want.network || got.host != want.host || got.tls != want.tls {
			t.Errorf("%s: %+v, %v; want %+v", uri, got, err, want)
		}
	}
	for uri, want := range map[string]string{
		"":                                    "driver",
		"xen:///system":                       "driver",
		"test:///default":                     "driver",
		"qemu:///":                            "path",
		"qemu+ssh://node1/system":             "transport ssh",
		"qemu+tcp:///system":                  "host is missing",
		"qemu+unix://node1/system":            "no host",
		"qemu:///session":                     "socket",
		"qemu+tcp://nova@node1/system":        "user",
		"qemu+tcp://nova:pw@node1/system":     "user",
		"qemu+tls://node1/system?no_verify=1": "no_verify",
		"qemu+tcp://node1/system?socket=/x":   "socket",
		"qemu://%zz/system":                   "does not parse",
	} {
		if _, err := parseURI(uri); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error about %q", uri, err, want)
		}
	}
}

func TestTwoSpellingsOfOneLibvirtd(t *testing.T) {
	taken := map[string]bool{}
	for _, same := range [][]string{
		{"qemu:///system", "qemu+unix:///system", "qemu+unix:///system?socket=/var/run/libvirt/libvirt-sock", "qemu+unix:///system?socket=/run/libvirt/virtqemud-sock-ro", "qemu+tcp://localhost/system", "qemu+tls://[::1]/system"},
		{"qemu+tcp://node1/system", "qemu+tcp://Node1:16509/system", "qemu+tls://node1/system", "qemu://node1:16514/system"},
		{"qemu+tcp://node1:17000/system", "qemu+tls://node1:17000/system"},
		{"qemu+unix:///system?socket=/run/a", "qemu+unix:///system?socket=/run/./a"},
		{"qemu+tcp://127.0.0.1:17000/system"}, // a tunnel leads anywhere
		{"qemu+tcp://127.0.0.1:17001/system"},
		{"qemu+tcp://node2/system"},
		{"qemu+tcp://node1/session"},
		{"qemu+unix:///session?socket=/run/a"},
	} {
		first, err := Target(same[0])
		if err != nil || taken[first] {
			t.Errorf("%s: %q, %v: another one has it", same[0], first, err)
		}
		taken[first] = true
		for _, uri := range same {
			if got, err := Target(uri); err != nil || got != first {
				t.Errorf("%s: %q, %v; want %q as of %s", uri, got, err, first, same[0])
			}
		}
	}
	if _, err := Target("qemu+ssh://node1/system"); err == nil {
		t.Error("a transport that nobody speaks has a target")
	}
}

func TestCredentials(t *testing.T) {
	file := filepath.Join(t.TempDir(), "auth.conf")
	text := "# libvirt\n[credentials-other]\nauthname=other\npassword=x\n\n[credentials-default]\nauthname = nova\npassword = s3=cret\n[auth-libvirt-default]\ncredentials=default\n[credentials-half]\nauthname=nova\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		opts                 Options
		user, password, fail string
	}{
		"none":                         {Options{}, "", "", ""},
		"given":                        {Options{Username: "u", Password: "p"}, "u", "p", ""},
		"given before the file":        {Options{Username: "u", Password: "p", AuthFile: file}, "u", "p", ""},
		"Nova's section":               {Options{AuthFile: file}, "nova", "s3=cret", ""},
		"another section":              {Options{AuthFile: file, AuthSection: "credentials-other"}, "other", "x", ""},
		"a user alone":                 {Options{Username: "u"}, "", "", "both"},
		"a password alone":             {Options{Password: "p"}, "", "", "both"},
		"a section that is not":        {Options{AuthFile: file, AuthSection: "credentials-no"}, "", "", "no section [credentials-no]"},
		"a section without a password": {Options{AuthFile: file, AuthSection: "credentials-half"}, "", "", "needs authname and password"},
		"no file":                      {Options{AuthFile: file + "x"}, "", "", "auth file"},
	} {
		user, password, err := tt.opts.credentials()
		if user != tt.user || password != tt.password || (err != nil) != (tt.fail != "") || err != nil && !strings.Contains(err.Error(), tt.fail) {
			t.Errorf("%s: %q %q %v, want %q %q %q", name, user, password, err, tt.user, tt.password, tt.fail)
		}
		if err != nil && strings.Contains(err.Error(), "s3=cret") {
			t.Errorf("%s: the password is in the error", name)
		}
	}
}
