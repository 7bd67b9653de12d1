package libvirt

import (
	"encoding/binary"
	"math"
	"net"
	"reflect"
	"strconv"
	"strings"
	"testing"

	rpc "github.com/digitalocean/go-libvirt"
	"github.com/google/uuid"

	"github.com/ratebatch/ratebatch/fixtures/libvirtpeer"
)

type param struct {
	name  string
	value any
}

func stat(name string, v any) param { return param{name, v} }

// answer is the payload of a bulk call's answer with one domain.
func answer(fields ...param) []byte {
	text := func(b []byte, s string) []byte {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
		return append(b, make([]byte, -len(s)&3)...)
	}
	b := binary.BigEndian.AppendUint32(nil, 1)
	b = text(b, "instance-1")
	b = append(b, make([]byte, 15)...)
	b = append(b, 7)
	b = binary.BigEndian.AppendUint32(b, 3)
	b = binary.BigEndian.AppendUint32(b, uint32(len(fields)))
	for _, f := range fields {
		b = text(b, f.name)
		switch v := f.value.(type) {
		case int32:
			b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, kindInt), uint32(v))
		case uint32:
			b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, kindUint), v)
		case int64:
			b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(b, kindLong), uint64(v))
		case uint64:
			b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(b, kindUlong), v)
		case float64:
			b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(b, kindDouble), math.Float64bits(v))
		case bool:
			b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, kindBoolean), 1)
		case string:
			b = text(binary.BigEndian.AppendUint32(b, kindString), v)
		}
	}
	return b
}

// One field of an unexpected kind costs itself and nothing else.
func TestDecodeTakesNothingForGranted(t *testing.T) {
	all, err := decodeStats(answer(
		stat("state.state", "running"), stat("cpu.time", int64(-1)), stat("balloon.current", uint64(1)<<60), stat("balloon.rss", uint64(2)),
		stat("vcpu.current", uint32(70000)), stat("net.count", uint32(9)), stat("net.0.name", uint32(3)), stat("net.0.rx.bytes", uint64(4)),
		stat("net.2.name", "tap2"), stat("net.2.rx.bytes", int64(5)), stat("net.x.name", "y"), stat("net.", "x"), stat("", "x"), stat("block.5.name", "vdf"),
		stat("block.5.rd.bytes", 1.5), stat("block.5.wr.bytes", uint64(6)), stat("new.thing", true),
	))
	if err != nil {
		t.Fatal(err)
	}
	d := all[0]
	if d.State != StateUnknown || d.CPUTimeNS != nil || d.MemoryActualBytes != nil || *d.MemoryRSSBytes != 2048 || d.VCPUs != 0 {
		t.Errorf("%+v", d)
	}
	if len(d.Interfaces) != 1 || d.Interfaces[0].Name != "tap2" || *d.Interfaces[0].RxBytes != 5 || d.Interfaces[0].TxBytes != nil {
		t.Errorf("%+v", d.Interfaces)
	}
	if len(d.Disks) != 1 || d.Disks[0].Device != "vdf" || d.Disks[0].ReadBytes != nil || *d.Disks[0].WriteBytes != 6 {
		t.Errorf("%+v", d.Disks)
	}
}

func TestAnAnswerThatIsNoneIsRefused(t *testing.T) {
	good := answer(stat("cpu.time", uint64(5)), stat("net.0.name", "tap1"))
	if ds, err := decodeStats(good); err != nil || len(ds) != 1 || ds[0].Name != "instance-1" || ds[0].ID != 3 || ds[0].UUID != (uuid.UUID{15: 7}) || *ds[0].CPUTimeNS != 5 {
		t.Fatalf("%+v, %v", ds, err)
	}
	for n := range good {
		if ds, err := decodeStats(good[:n]); err == nil {
			t.Errorf("cut to %d of %d bytes it gives %+v", n, len(good), ds)
		}
	}
	for name, b := range map[string][]byte{
		"more bytes than domains":     append(append([]byte{}, good...), 0),
		"more domains than bytes":     append([]byte{0, 0, 0, 9}, good[4:]...),
		"four thousand million":       append([]byte{255, 255, 255, 255}, good[4:]...),
		"a name of four GiB":          append([]byte{0, 0, 0, 1, 255, 255, 255, 255}, good[8:]...),
		"a field of an unknown type":  append(append([]byte{}, good[:len(good)-12]...), 0, 0, 0, 9, 0, 0, 0, 4, 't', 'a', 'p', '1'),
		"nothing":                     nil,
		"fields without their values": append(append([]byte{}, answer()[:4+16+16+4]...), 0, 0, 255, 255),
	} {
		if ds, err := decodeStats(b); err == nil || len(err.Error()) > 200 {
			t.Errorf("%s: %+v, %v", name, ds, err)
		}
	}
}

// What decodeStats reads is what go-libvirt reads.
func TestStatisticsAreReadAsGoLibvirtReadsThem(t *testing.T) {
	server := peer(t, libvirtpeer.Options{Domains: 40})
	server.Edit(func(ds []*libvirtpeer.Domain) {
		for i, d := range ds {
			d.VCPUs, d.CPUNS, d.Actual = uint32(1+i%9), uint64(i)<<58, uint64(i)<<50
			d.Name = strings.Repeat("n", i)
			d.Stalled = i%7 == 3
			for range i % 5 {
				d.NICs = append(d.NICs, libvirtpeer.NIC{Tap: "tap" + strconv.Itoa(len(d.NICs)), Rx: uint64(i) << 57, Tx: 1})
			}
			if i%6 == 5 {
				d.Disks, d.NICs = nil, nil
			}
			if i%4 == 1 {
				d.Omit = func(f string) bool { return strings.HasSuffix(f, ".bytes") || f == "net.1.name" || f == "vcpu.current" }
			}
		}
	})
	h := host(t, Options{URI: server.URI()})
	got := poll(t, h).Domains
	records := plain(t, server.URI())
	if len(got) != 40 || len(records) != 40 {
		t.Fatalf("%d and %d domains", len(got), len(records))
	}
	for i := range records {
		want := reference(&records[i])
		d := got[i]
		d.Described, d.Nova, d.Problem = false, Nova{}, ""
		for n := range d.Interfaces {
			d.Interfaces[n].InterfaceID, d.Interfaces[n].MAC = "", ""
		}
		if !reflect.DeepEqual(d, want) {
			t.Errorf("domain %d: %+v, go-libvirt says %+v", i, d, want)
		}
	}
}

// plain asks for the statistics with go-libvirt alone.
func plain(t testing.TB, uri string) []rpc.DomainStatsRecord {
	t.Helper()
	where, err := parseURI(uri)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial(where.network, where.places[0])
	if err != nil {
		t.Fatal(err)
	}
	client := rpc.NewWithDialer(dialed{conn})
	if err := client.ConnectToURI(rpc.ConnectURI(where.driver)); err != nil {
		t.Fatal(err)
	}
	records, err := client.ConnectGetAllDomainStats(nil, statGroups, statFlags)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Disconnect(); err != nil {
		t.Fatal(err)
	}
	return records
}

func FuzzDecodeStats(f *testing.F) {
	f.Add(answer(stat("cpu.time", uint64(5)), stat("net.0.name", "tap1"), stat("net.0.rx.bytes", uint64(1)), stat("block.1.name", "vda")))
	f.Add([]byte{0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		ds, err := decodeStats(b)
		if err != nil && ds != nil || len(ds) > len(b)/leastRef {
			t.Errorf("%d domains of %d bytes, %v", len(ds), len(b), err)
		}
	})
}

// reference is how answers were read before decodeStats: by go-libvirt, whose
// records this turns into domains.
func reference(rec *rpc.DomainStatsRecord) Domain {
	d := Domain{UUID: uuid.UUID(rec.Dom.UUID), ID: rec.Dom.ID, Name: rec.Dom.Name}
	// One allocation for all numbers: a poll of 500 domains has 15,000.
	nums := make([]uint64, 0, len(rec.Params))
	num := func(p *rpc.TypedParam, unit uint64) *uint64 {
		v, ok := refNumber(p.Value.I)
		if !ok || v > math.MaxUint64/unit {
			return nil
		}
		nums = append(nums, v*unit)
		return &nums[len(nums)-1]
	}
	nic, disk := refIndex[Interface]{}, refIndex[Disk]{}
	for i := range rec.Params {
		p := &rec.Params[i]
		group, rest, _ := strings.Cut(p.Field, ".")
		switch group {
		case "state":
			if v, ok := p.Value.I.(int32); ok && rest == "state" {
				d.State = State(v)
			}
		case "cpu":
			if rest == "time" {
				d.CPUTimeNS = num(p, 1)
			}
		case "balloon":
			switch rest {
			case "current":
				d.MemoryActualBytes = num(p, 1024)
			case "rss":
				d.MemoryRSSBytes = num(p, 1024)
			case "usable":
				d.MemoryUsableBytes = num(p, 1024)
			}
		case "vcpu":
			if v, ok := refNumber(p.Value.I); ok && rest == "current" && v <= math.MaxUint16 {
				d.VCPUs = uint16(v)
			}
		case "net":
			n, field := nic.at(rest)
			if n == nil {
				continue
			}
			switch field {
			case "name":
				n.Name, _ = p.Value.I.(string)
			case "rx.bytes":
				n.RxBytes = num(p, 1)
			case "tx.bytes":
				n.TxBytes = num(p, 1)
			}
		case "block":
			b, field := disk.at(rest)
			if b == nil {
				continue
			}
			switch field {
			case "name":
				b.Device, _ = p.Value.I.(string)
			case "rd.bytes":
				b.ReadBytes = num(p, 1)
			case "wr.bytes":
				b.WriteBytes = num(p, 1)
			case "rd.reqs":
				b.ReadRequests = num(p, 1)
			case "wr.reqs":
				b.WriteRequests = num(p, 1)
			case "capacity":
				b.CapacityBytes = num(p, 1)
			case "allocation":
				b.AllocationBytes = num(p, 1)
			case "physical":
				b.PhysicalBytes = num(p, 1)
			}
		}
	}
	// A device without a name cannot be told from another at the next poll.
	for _, n := range nic.items {
		if n.Name != "" {
			d.Interfaces = append(d.Interfaces, n)
		}
	}
	for _, b := range disk.items {
		if b.Device != "" {
			d.Disks = append(d.Disks, b)
		}
	}
	return d
}

// refIndex is index with strings.
type refIndex[T any] struct {
	items   []T
	numbers []int
}

func (x *refIndex[T]) at(rest string) (*T, string) {
	head, field, ok := strings.Cut(rest, ".")
	if !ok {
		return nil, "" // "count"
	}
	n, err := strconv.Atoi(head)
	if err != nil {
		return nil, ""
	}
	for i := len(x.numbers) - 1; i >= 0; i-- {
		if x.numbers[i] == n {
			return &x.items[i], field
		}
	}
	if len(x.items) == maxDevices {
		return nil, ""
	}
	var zero T
	x.items, x.numbers = append(x.items, zero), append(x.numbers, n)
	return &x.items[len(x.items)-1], field
}

func refNumber(v any) (uint64, bool) {
	switch v := v.(type) {
	case uint64:
		return v, true
	case uint32:
		return uint64(v), true
	case int64:
		return uint64(v), v >= 0
	case int32:
		return uint64(v), v >= 0
	}
	return 0, false
}
