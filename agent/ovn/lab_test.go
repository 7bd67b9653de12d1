package ovn

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/fixtures/lab"
)

// eventually waits for a condition that a database's answer brings about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 600 {
		if ok() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("not within 30 s: %s", what)
}

func resolves(r *Resolver, port string) func() bool {
	return func() bool { _, ok := r.Resolve(port); return ok }
}

// database is a real ovsdb-server with an empty Northbound database.
func database(t *testing.T, remotes ...string) *lab.Database {
	t.Helper()
	lab.Packages(t)
	d := lab.NorthboundDatabase(t, remotes, nil)
	d.Nbctl(t, "ls-add", "net")
	return d
}

// TestLabDatabase is the life of a database and of this host's ports, on a
// real ovsdb-server.
func TestLabDatabase(t *testing.T) {
	d := database(t)
	d.Nbctl(t, lab.PortArgs(portA, netA, vmA, "compute:nova")...)
	r := resolver(t, Options{Endpoints: []string{d.Endpoint}, MaxBackoff: time.Second, Timeout: 5 * time.Second})
	if err := r.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.SetPorts([]string{portA}, nil)
	eventually(t, "a port that is there", resolves(r, portA))
	if p, _ := r.Resolve(portA); p.NetworkUUID.String() != netA || p.DeviceID.String() != vmA || p.ProjectID != lab.Project {
		t.Errorf("port: %+v", p)
	}

	// A port whose row comes after its domain.
	r.SetPorts([]string{portA, portB}, nil)
	if _, ok := r.Resolve(portB); ok {
		t.Error("a port is known before it exists")
	}
	time.Sleep(300 * time.Millisecond)
	d.Nbctl(t, lab.PortArgs(portB, netA, vmB, "compute:az-2")...)
	eventually(t, "a port that comes late", resolves(r, portB))

	// Changed, then deleted: the newest row counts, the last known stays.
	d.Nbctl(t, "set", "Logical_Switch_Port", portA, `external_ids:"neutron:device_id"="`+vmB+`"`)
	eventually(t, "a port moved to another instance", func() bool { p, _ := r.Resolve(portA); return p.DeviceID.String() == vmB })
	d.Nbctl(t, "lsp-del", portA)
	time.Sleep(300 * time.Millisecond)
	if !resolves(r, portA)() {
		t.Error("a deleted port lost its owner before its last traffic was read")
	}

	// The server goes and comes back with other data.
	d.Stop(t)
	eventually(t, "the loss is noticed", func() bool { fresh, err := r.Status(); return !fresh && err != nil })
	if !resolves(r, portA)() || !resolves(r, portB)() {
		t.Error("answers were lost with the connection")
	}
	d.Create(t)
	d.Start(t)
	d.Nbctl(t, "ls-add", "net")
	third := "c0ffee03-0003-4000-8000-000000000003"
	r.SetPorts([]string{portA, portB, third}, nil)
	d.Nbctl(t, lab.PortArgs(portB, netA, vmA, "compute:nova")...)
	d.Nbctl(t, lab.PortArgs(third, netA, vmA, "compute:nova")...)
	eventually(t, "new data after a restart", func() bool {
		p, ok := r.Resolve(portB)
		return ok && p.DeviceID.String() == vmA && resolves(r, third)()
	})
	eventually(t, "fresh again", func() bool { fresh, _ := r.Status(); return fresh })

	// What is no longer here is forgotten.
	r.SetPorts([]string{third}, nil)
	if resolves(r, portB)() || !resolves(r, third)() {
		t.Error("a port that left the host is still known, or one that stayed is not")
	}
	r.SetPorts([]string{third, portB}, nil)
	eventually(t, "a port that comes back", resolves(r, portB))
	// Many ports come one by one: clients are merged.
	names := []string{third}
	for i := range 12 {
		n := fmt.Sprintf("c0ffee10-%04x-4000-8000-000000000010", i)
		names = append(names, n)
		r.SetPorts(names, nil)
		d.Nbctl(t, lab.PortArgs(n, netA, vmA, "compute:nova")...)
		eventually(t, "port "+n, resolves(r, n))
	}
	if n := connections(t, d); n > maxSessions+1 {
		t.Errorf("%d connections to the database after twelve changes, want at most %d", n, maxSessions+1)
	}
}

// connections counts the server's sessions, less the one of the unix socket
// that asks.
func connections(t *testing.T, d *lab.Database) int {
	t.Helper()
	out, err := exec.Command("ovs-appctl", "-t", filepath.Join(filepath.Dir(d.Socket), "ctl"), "memory/show").CombinedOutput()
	if err != nil {
		t.Fatalf("ovs-appctl: %v %s", err, out)
	}
	m := regexp.MustCompile(`sessions:(\d+)`).FindSubmatch(out)
	if m == nil {
		return 0
	}
	n := 0
	fmt.Sscan(string(m[1]), &n)
	return n
}

func TestLabServerHangs(t *testing.T) {
	d := database(t)
	d.Nbctl(t, lab.PortArgs(portA, netA, vmA, "compute:nova")...)
	r := resolver(t, Options{Endpoints: []string{d.Endpoint}, MaxBackoff: time.Second, Timeout: time.Second})
	r.SetPorts([]string{portA}, nil)
	eventually(t, "the port", resolves(r, portA))
	d.Signal(t, syscall.SIGSTOP)
	r.SetPorts([]string{portA, portB}, nil)
	eventually(t, "the hang is noticed", func() bool { fresh, err := r.Status(); return !fresh && err != nil })
	if !resolves(r, portA)() {
		t.Error("an answer was lost while the server hangs")
	}
	d.Signal(t, syscall.SIGCONT)
	d.Nbctl(t, lab.PortArgs(portB, netA, vmA, "compute:nova")...)
	eventually(t, "the other port, after the hang", resolves(r, portB))
	// A resolver can be closed while the server hangs.
	d.Signal(t, syscall.SIGSTOP)
	start := time.Now()
	r.Close()
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("closing took %v", took)
	}
	d.Signal(t, syscall.SIGCONT)
}

func TestLabSeveralEndpoints(t *testing.T) {
	a, b := database(t), database(t)
	for _, d := range []*lab.Database{a, b} {
		d.Nbctl(t, lab.PortArgs(portA, netA, vmA, "compute:nova")...)
	}
	r := resolver(t, Options{Endpoints: []string{a.Endpoint, b.Endpoint}, MaxBackoff: time.Second})
	r.SetPorts([]string{portA}, nil)
	eventually(t, "the port", resolves(r, portA))
	a.Stop(t)
	b.Nbctl(t, lab.PortArgs(portB, netA, vmA, "compute:nova")...)
	r.SetPorts([]string{portA, portB}, nil)
	eventually(t, "a port that only the second server has", resolves(r, portB))
}

// A vNIC whose XML names no port is found by its name and instance, and then
// watched like any other.
func TestLabTaps(t *testing.T) {
	d := database(t)
	d.Nbctl(t, lab.PortArgs(portA, netA, vmA, "compute:nova")...)
	d.Nbctl(t, lab.PortArgs(portB, netA, vmB, "compute:nova")...)
	r := resolver(t, Options{Endpoints: []string{d.Endpoint}})
	tap, a, b := "tapc0ffee01-00", uuid.MustParse(vmA), uuid.MustParse(vmB)
	r.SetPorts(nil, []Tap{{tap, a}, {tap, b}})
	eventually(t, "both taps", func() bool {
		_, ok1 := r.ResolveTap(tap, a)
		_, ok2 := r.ResolveTap(tap, b)
		return ok1 && ok2
	})
	pa, _ := r.ResolveTap(tap, a)
	pb, _ := r.ResolveTap(tap, b)
	if pa.PortUUID.String() != portA || pb.PortUUID.String() != portB {
		t.Errorf("the same name on two instances: %+v, %+v", pa, pb)
	}
	if _, ok := r.ResolveTap("tapother", a); ok {
		t.Error("a tap that nobody set is known")
	}
	d.Nbctl(t, "set", "Logical_Switch_Port", portA, `external_ids:"neutron:project_id"="p2"`)
	eventually(t, "a found port is watched", func() bool { p, _ := r.ResolveTap(tap, a); return p.ProjectID == "p2" })
}

// A newer OVN has more columns.
func TestLabNewerSchema(t *testing.T) {
	lab.Packages(t)
	d := lab.NorthboundDatabase(t, nil, func(schema []byte) []byte {
		var s map[string]any
		if err := json.Unmarshal(schema, &s); err != nil {
			t.Fatal(err)
		}
		s["version"] = "99.0.0"
		lsp := s["tables"].(map[string]any)["Logical_Switch_Port"].(map[string]any)["columns"].(map[string]any)
		lsp["shiny"] = map[string]any{"type": map[string]any{"key": "string", "min": 0, "max": "unlimited"}}
		s["tables"].(map[string]any)["Shiny"] = map[string]any{"columns": map[string]any{"name": map[string]any{"type": "string"}}, "isRoot": true}
		out, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return out
	})
	transact(t, d, portRows(0, 1, "net"))
	r := resolver(t, Options{Endpoints: []string{d.Endpoint}})
	r.SetPorts([]string{manyPort(0)}, nil)
	eventually(t, "a port", resolves(r, manyPort(0)))
}

func TestLabTLS(t *testing.T) {
	lab.Packages(t)
	dir := t.TempDir()
	script := `set -e; cd "$0"; for c in ca other; do openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=$c -keyout $c.key -out $c.pem; done
for n in server client; do openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=$n -keyout $n.key -out $n.csr
openssl x509 -req -in $n.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 -out $n.pem; done`
	if out, err := exec.Command("bash", "-c", script, dir).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	file := func(n string) string { return filepath.Join(dir, n) }
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := ln.Addr().(*net.TCPAddr).Port
	ln.Close()
	d := database(t, fmt.Sprintf("pssl:%d:127.0.0.1", port), "--private-key="+file("server.key"), "--certificate="+file("server.pem"), "--ca-cert="+file("ca.pem"))
	d.Nbctl(t, lab.PortArgs(portA, netA, vmA, "compute:nova")...)
	opts := Options{Endpoints: []string{fmt.Sprintf("ssl:127.0.0.1:%d", port)}, TLS: TLSFiles{CA: file("ca.pem"), Cert: file("client.pem"), Key: file("client.key")}}
	r := resolver(t, opts)
	r.SetPorts([]string{portA}, nil)
	eventually(t, "a port over TLS", resolves(r, portA))

	opts.TLS.CA = file("other.pem")
	if err := resolver(t, opts).Check(t.Context()); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a server of another authority: %v", err)
	}
}

// TestLabSouthbound reads the Southbound database of a whole compute node. A
// graceful stop of ovn-controller empties the chassis while traffic flows.
func TestLabSouthbound(t *testing.T) {
	l := lab.Up(t)
	byName := resolver(t, Options{Endpoints: []string{lab.Southbound}, Southbound: true})
	byChassis := resolver(t, Options{Endpoints: []string{lab.Southbound}, Southbound: true, Chassis: lab.Chassis, MaxBackoff: time.Second})
	north := resolver(t, Options{Endpoints: []string{lab.Northbound}})
	tap := Tap{"tapc0ffee04-00", uuid.MustParse(lab.VM3)}
	for _, r := range []*Resolver{byName, byChassis, north} {
		r.SetPorts([]string{lab.Port1, lab.Port3}, []Tap{tap})
	}
	check := func(when string) {
		t.Helper()
		for name, r := range map[string]*Resolver{"by name": byName, "by chassis": byChassis, "north": north} {
			eventually(t, name+" "+when, resolves(r, lab.Port3))
			p, _ := r.Resolve(lab.Port3)
			q, ok := r.ResolveTap(tap.Name, tap.Instance)
			if p.NetworkUUID.String() != lab.NetGreen || p.DeviceID.String() != lab.VM3 || !ok || q.PortUUID.String() != lab.Port4 || q.NetworkUUID.String() != lab.NetBlue {
				t.Errorf("%s %s: %+v, %+v", name, when, p, q)
			}
		}
	}
	for _, r := range []*Resolver{byName, byChassis, north} {
		eventually(t, "the tap", func() bool { _, ok := r.ResolveTap(tap.Name, tap.Instance); return ok })
	}
	check("at first")
	pid := l.PID(t, "ovn-controller")
	l.Do(t, "ovn-appctl", "-t", filepath.Join(l.State, "run", fmt.Sprintf("ovn-controller.%d.ctl", pid)), "exit")
	eventually(t, "ovn-controller is gone", func() bool { return syscall.Kill(pid, 0) != nil })
	time.Sleep(500 * time.Millisecond)
	check("without ovn-controller")
	l.Again(t)
	for _, r := range []*Resolver{byName, byChassis} {
		r.SetPorts([]string{lab.Port1, lab.Port2, lab.Port3}, []Tap{tap})
		eventually(t, "a new port after ovn-controller came back", resolves(r, lab.Port2))
	}
	check("with it again")
}

func manyPort(i int) string { return fmt.Sprintf("c0ffee00-%04x-4000-8000-%012x", i%65536, i) }

// portRows is a transaction that adds n ports as Neutron writes them, with the
// columns that make rows as large as they are.
func portRows(from, n int, ls string) []any {
	ops := []any{"OVN_Northbound"}
	var refs []any
	for i := from; i < from+n; i++ {
		id := fmt.Sprintf("p%d", i)
		refs = append(refs, []any{"named-uuid", id})
		ids := []any{}
		for k, v := range map[string]string{"device_id": fmt.Sprintf("aaaaaaaa-1111-4000-8000-%012x", i), "device_owner": "compute:nova",
			"network_name": "neutron-" + netA, "project_id": lab.Project, "port_name": "port", "cidrs": "198.51.100.1/24", "revision_number": "4", "mtu": "1442",
			"security_group_ids": netA, "subnet_pool_addr_scope4": "", "vnic_type": "normal", "host_id": "compute-1"} {
			ids = append(ids, []any{"neutron:" + k, v})
		}
		ops = append(ops, map[string]any{"op": "insert", "table": "Logical_Switch_Port", "uuid-name": id,
			"row": map[string]any{"name": manyPort(i), "external_ids": []any{"map", ids}, "addresses": fmt.Sprintf("fa:16:3e:%02x:%02x:%02x 198.51.100.1", i>>16&255, i>>8&255, i&255)}})
	}
	ops = append(ops, map[string]any{"op": "insert", "table": "Logical_Switch", "row": map[string]any{"name": ls, "ports": []any{"set", refs}}})
	return ops
}

// transact sends one transaction in the database's own language.
func transact(t testing.TB, d *lab.Database, ops []any) {
	t.Helper()
	c, err := net.Dial("unix", d.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := json.NewEncoder(c).Encode(map[string]any{"id": 1, "method": "transact", "params": ops}); err != nil {
		t.Fatal(err)
	}
	var reply struct {
		Result []struct{ Error, Details string }
		Error  any
	}
	if err := json.NewDecoder(c).Decode(&reply); err != nil {
		t.Fatal(err)
	}
	for _, r := range reply.Result {
		if r.Error != "" {
			t.Fatalf("%s: %s", r.Error, r.Details)
		}
	}
	if reply.Error != nil {
		t.Fatal(reply.Error)
	}
}

// TestLabMemory is what a compute node pays: 50,000 ports in the database, 500
// of them here. The resolver runs in a process of its own, which this test's
// binary becomes when asked to.
func TestLabMemory(t *testing.T) {
	if endpoint := os.Getenv("RATEBATCH_OVN_CHILD"); endpoint != "" {
		memoryChild(t, endpoint)
		return
	}
	d := database(t)
	const total, batch = 50_000, 5_000
	for i := 0; i < total; i += batch {
		transact(t, d, portRows(i, batch, fmt.Sprintf("ls%d", i)))
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestLabMemory$", "-test.v")
	cmd.Env = append(os.Environ(), "RATEBATCH_OVN_CHILD="+d.Endpoint)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	m := regexp.MustCompile(`peak (\d+) kB`).FindSubmatch(out)
	if m == nil {
		t.Fatalf("no figure in %s", out)
	}
	peak := 0
	fmt.Sscan(string(m[1]), &peak)
	for _, line := range strings.Split(string(out), "\n") {
		if strings.Contains(line, "lab_test.go") {
			t.Log(strings.TrimSpace(line))
		}
	}
	if raceDetector {
		t.Skip("the race detector's own memory is in this figure")
	}
	if peak > 40<<10 {
		t.Errorf("peak RSS %d kB, want below 40 MB", peak)
	}
}

func memoryChild(t *testing.T, endpoint string) {
	start := time.Now()
	r := resolver(t, Options{Endpoints: []string{endpoint}})
	var names []string
	for i := range 500 {
		names = append(names, manyPort(i*97%50_000))
	}
	r.SetPorts(names, nil)
	all := func() bool {
		for _, n := range names {
			if !resolves(r, n)() {
				return false
			}
		}
		return true
	}
	eventually(t, "500 ports", all)
	first := time.Since(start)
	start = time.Now()
	extra := manyPort(49_999)
	r.SetPorts(append(names, extra), nil)
	eventually(t, "one more", resolves(r, extra))
	t.Logf("500 of 50,000 ports known after %v, one more after %v", first.Round(time.Millisecond), time.Since(start).Round(time.Millisecond))
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(status), "\n") {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmHWM:" {
			t.Logf("peak %s kB", f[1])
		}
	}
}
