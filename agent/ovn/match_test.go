package ovn

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/google/uuid"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	portA = "c0ffee01-0001-4000-8000-000000000001"
	portB = "c0ffee01-0002-4000-8000-000000000002"
	netA  = "11111111-1111-4111-8111-000000000001"
	vmA   = "aaaaaaaa-0000-4000-8000-000000000001"
	vmB   = "aaaaaaaa-0000-4000-8000-000000000002"
)

func TestTapsMatchOnePort(t *testing.T) {
	rows := []row{{name: portA}, {name: portB}, {name: "router-port"}}
	for tap, want := range map[string]string{
		"tapc0ffee01-00":    "",    // fits two
		"tapc0ffee01-0001":  portA, // any length
		"tapc0ffee01-00-02": portB,
		"tapC0FFEE010001":   portA,
		"tapc0ff":           "", // too short to mean anything
		"tap":               "",
		"vnet7":             "",
		"tapdeadbeef-00":    "",
	} {
		got, ok := match(tap, rows)
		if got.name != want || ok != (want != "") {
			t.Errorf("%s: %q, want %q", tap, got.name, want)
		}
	}
}

func neutron(device, owner string) map[string]string {
	return map[string]string{"neutron:device_id": device, "neutron:device_owner": owner,
		"neutron:network_name": "neutron-" + netA, "neutron:project_id": "p1"}
}

func resolver(t *testing.T, o Options) *Resolver {
	t.Helper()
	if o.Endpoints == nil {
		o.Endpoints = []string{"unix:/nowhere"}
	}
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func TestRowsBecomeAnswers(t *testing.T) {
	want := Port{PortUUID: uuid.MustParse(portA), NetworkUUID: uuid.MustParse(netA), DeviceID: uuid.MustParse(vmA), DeviceOwner: "compute:nova", ProjectID: "p1"}
	with := func(p Port, change func(*Port)) Port { change(&p); return p }
	for name, tt := range map[string]struct {
		owner   string
		rows    []row
		want    Port
		ignored string
		warned  int
	}{
		"a port of Nova's":       {"", []row{{portA, neutron(vmA, "compute:nova")}}, want, "", 0},
		"another zone":           {"", []row{{portA, neutron(vmA, "compute:az-2")}}, with(want, func(p *Port) { p.DeviceOwner = "compute:az-2" }), "", 0},
		"a zone with a slash":    {"", []row{{portA, neutron(vmA, "compute:rack/1")}}, with(want, func(p *Port) { p.DeviceOwner = "compute:rack/1" }), "", 0},
		"a spec with a slash":    {"compute:r*/[12]", []row{{portA, neutron(vmA, "compute:rack/2/1")}}, with(want, func(p *Port) { p.DeviceOwner = "compute:rack/2/1" }), "", 0},
		"only the spec's":        {"compute:nova", []row{{portA, neutron(vmA, "compute:az-2")}}, Port{}, "does not match", 0},
		"a DHCP port":            {"", []row{{portA, neutron("dhcp-x", "network:dhcp")}}, Port{}, "does not match", 0},
		"nobody's port, yet":     {"", []row{{portA, neutron("", "")}}, Port{}, "", 0},
		"unbound before the end": {"", []row{{portA, neutron(vmA, "compute:nova")}, {portA, neutron("", "")}}, want, "", 0},
		"moved to another VM":    {"", []row{{portA, neutron(vmA, "compute:nova")}, {portA, neutron(vmB, "compute:nova")}}, with(want, func(p *Port) { p.DeviceID = uuid.MustParse(vmB) }), "", 0},
		"not of this host":       {"", []row{{portB, neutron(vmA, "compute:nova")}}, Port{}, "", 0},
		"a foreign network name": {"", []row{{portA, map[string]string{"neutron:network_name": "blue", "neutron:device_owner": "compute:nova"}}}, Port{}, "", 1},
		"a row that stays odd":   {"", []row{{portA, neutron("vm", "compute:nova")}, {portA, neutron("vm", "compute:nova")}, {portA, neutron("other", "compute:nova")}}, Port{}, "", 2},
		"odd and mended":         {"", []row{{portA, neutron("vm", "compute:nova")}, {portA, neutron(vmA, "compute:nova")}}, want, "", 1},
		"odd and not metered":    {"", []row{{portA, neutron("vm", "network:dhcp")}, {portA, neutron("vm", "compute:nova")}}, Port{}, "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			var said strings.Builder
			r := resolver(t, Options{DeviceOwner: tt.owner, Log: slog.New(slog.NewTextHandler(&said, nil))})
			r.wanted[portA] = struct{}{}
			r.rename()
			for _, w := range tt.rows {
				r.learn(w)
			}
			got, ok := r.Resolve(strings.ToUpper(portA))
			if got != tt.want || ok != (tt.want != Port{}) {
				t.Errorf("%+v %v, want %+v", got, ok, tt.want)
			}
			reason, _ := r.Ignored(portA)
			if !strings.Contains(reason, tt.ignored) || (reason == "") != (tt.ignored == "") {
				t.Errorf("ignored %q, want %q", reason, tt.ignored)
			}
			// A vNIC that is found by its tap's name is told the same.
			tap := Tap{"tap" + portA[:11], uuid.MustParse(vmA)}
			r.taps[tap] = &tapState{port: portA}
			if _, ignored := r.IgnoredTap(tap.Name, tap.Instance); ignored != (tt.ignored != "") {
				t.Errorf("by its tap it is ignored: %v", ignored)
			}
			if odd := tt.warned > 0 && tt.want == (Port{}) || name == "odd and not metered"; r.Unreadable(portA) != odd {
				t.Errorf("unreadable is %v, want %v", !odd, odd)
			}
			if n := strings.Count(said.String(), "cannot be read"); n != tt.warned {
				t.Errorf("%d warnings, want %d: %s", n, tt.warned, said.String())
			}
		})
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for name, tt := range map[string]struct {
		o    Options
		want string
	}{
		"none":          {Options{}, "no endpoint"},
		"no port":       {Options{Endpoints: []string{"tcp:host"}}, `"tcp:host"`},
		"a URL":         {Options{Endpoints: []string{"tcp://host:6641"}}, "use tcp:host:port"},
		"ssl, no files": {Options{Endpoints: []string{"ssl:host:6641"}}, "needs a CA"},
		"chassis":       {Options{Endpoints: []string{"tcp:h:1"}, Chassis: "c"}, "Southbound"},
		"a bad glob":    {Options{Endpoints: []string{"tcp:h:1"}, DeviceOwner: "["}, "pattern"},
	} {
		if _, err := New(tt.o); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want an error about %s", name, err, tt.want)
		}
	}
	if _, err := New(Options{Endpoints: []string{"tcp:[2001:db8::1]:6641", "unix:/run/ovn/ovnnb_db.sock"}}); err != nil {
		t.Error(err)
	}
}
